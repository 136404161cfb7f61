package core

import (
	"fmt"
	"time"
)

// Act is a person's change to a row: which, by whom and why. It becomes a line of the row's history.
type Act struct {
	ID  string
	By  string
	Why string // for people, in one sentence; may be empty
}

// Edit is other content for a row. Its id, key, seq, route and type stay: the id is what consumers dedupe by, and key and
// seq are its place.
type Edit struct {
	Payload []byte  // nil keeps the row's; empty is an empty one
	Headers *string // nil keeps the row's; text as the headers column takes it
}

// Empty says that there is nothing to change.
func (e Edit) Empty() bool { return e.Payload == nil && e.Headers == nil }

// Check says with a *ContentError why no row can have this content.
func (e Edit) Check(id string) error {
	if e.Empty() {
		return &ContentError{ID: id, Why: "the edit has neither a payload nor headers"}
	}
	if e.Headers == nil {
		return nil
	}
	if _, err := ParseHeaders([]byte(*e.Headers)); err != nil {
		return &ContentError{ID: id, Why: err.Error()}
	}
	return nil
}

// Revision is what a row was until it was edited.
type Revision struct {
	At      time.Time // when it was edited
	By, Why string
	Payload []byte
	Headers string
}

// MaxRevisions is how often a row can be edited. No revision ever goes before its row, so that what the application
// committed can always be seen.
const MaxRevisions = 20

// ContentError says why a row cannot have the content of an edit.
type ContentError struct{ ID, Why string }

func (e *ContentError) Error() string { return fmt.Sprintf("row %s is not changed: %s", e.ID, e.Why) }

// TooManyRevisions is the error of an edit of a row that was edited MaxRevisions times.
func TooManyRevisions(id string) error {
	return &ContentError{ID: id, Why: fmt.Sprintf("it was edited %d times already, and what it was is never thrown away; skip it, and insert another", MaxRevisions)}
}
