package rowwork

import (
	"slices"

	"github.com/connectd/connectd/core"
)

// Verb is what is done to rows.
type Verb string

// The verbs. They are the codes of their lines in a row's history too.
const (
	Retry   Verb = "retry"
	Skip    Verb = "skip"
	Release Verb = "release"
)

// edited is the code of an edit's line; an edit is a Retry that has other content.
const edited Verb = "edit"

// Verbs are those that a person can choose.
func Verbs() []Verb { return []Verb{Retry, Skip, Release} }

// From are the states of the rows that the verb is for.
func (v Verb) From() []core.State {
	switch v {
	case Skip:
		return []core.State{core.Dead, core.Held}
	case Release:
		return []core.State{core.Held}
	default:
		return []core.State{core.Dead}
	}
}

// Past is what was done to a row, as "retried".
func (v Verb) Past() string {
	switch v {
	case Retry:
		return "retried"
	case Skip:
		return "skipped"
	case edited:
		return "edited"
	default:
		return "released"
	}
}

// ByPerson says that a line of a row's history is of a person's change.
func ByPerson(a core.Attempt) bool {
	return Verb(a.Code) == edited || slices.Contains(Verbs(), Verb(a.Code))
}
