package layout

import (
	"errors"
	"fmt"
	"strings"

	"github.com/connectd/connectd/core"
)

// MisfitError says that a table cannot be used because of one of its columns: "id" or "order".
type MisfitError struct {
	About string
	text  string
}

func (e *MisfitError) Error() string { return e.text }

// Misfit is a MisfitError about the column that the configuration calls so: "the id column ..." and what is wrong with it.
func Misfit(about, column, text string) error {
	return &MisfitError{about, "the " + about + " column " + column + " " + text}
}

// MisfitOf is what a diagnosis calls that which is wrong with a table that cannot be used: one of its columns, or the table.
func MisfitOf(err error) string {
	var misfit *MisfitError
	if errors.As(err, &misfit) {
		return misfit.About
	}
	return "table"
}

// Missing adds what init has still to make, and says whether there is something. more is added to what to do.
func Missing(d *core.Diagnosis, lost []string, more string) bool {
	if len(lost) == 0 {
		return false
	}
	what := "initialised"
	if first := strings.TrimPrefix(lost[0], "valid "); strings.HasPrefix(first, "index ") {
		what = "index"
	}
	d.Fault(what, "there is no "+strings.Join(lost, ", no "), "run `connectd init`, which makes what is missing"+more)
	return true
}

// Initialised adds which version of the relay's tables is there, beside the one that this program makes.
func Initialised(d *core.Diagnosis, version, own, partitions int) {
	if version > own {
		d.Warn("initialised", fmt.Sprintf("the table was prepared by the next version of connectd (schema version %d, this one's is %d)", version, own), "upgrade connectd here too")
		return
	}
	d.Fine("initialised", "schema version %d, %d partitions", version, partitions)
}
