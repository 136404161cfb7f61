package layout

import (
	"fmt"
	"slices"

	"github.com/connectd/connectd/core"
)

// ExistingRowsError says that the table has rows of which nothing tells whether they have been sent.
type ExistingRowsError struct{ Table string }

func (e *ExistingRowsError) Error() string {
	return fmt.Sprintf("table %s has rows already: say what they are with --existing pending (send them) or --existing published (they have been sent)", e.Table)
}

// Existing says what the rows of a table that is adopted are: pending, published, or "" for what their column published
// says. answer is what a person says, "" for nothing; flagged, that there is such a column; undecided, that there are rows
// of which it must be known. Without an answer it is an ExistingRowsError.
func Existing(table, answer string, flagged, undecided bool) (core.State, error) {
	switch {
	case answer != "" && answer != string(core.Pending) && answer != string(core.Published):
		return "", fmt.Errorf("--existing is %q, must be pending or published", answer)
	case answer != "":
		return core.State(answer), nil
	case flagged:
		return "", nil
	case undecided:
		return "", &ExistingRowsError{Table: table}
	default:
		return core.Pending, nil
	}
}

// Allow returns a *core.StateError unless the row's state is one of those that a change is for.
func Allow(id string, state core.State, from ...core.State) error {
	if slices.Contains(from, state) {
		return nil
	}
	want := string(from[0])
	for _, other := range from[1:] {
		want += " or " + string(other)
	}
	return &core.StateError{ID: id, State: state, Want: want}
}

// ErrorText is a failure as last_error has it.
func ErrorText(f *core.Failure) string {
	if f.Message == "" {
		return core.CleanText(f.Code)
	}
	return core.CleanText(f.Code + ": " + f.Message)
}
