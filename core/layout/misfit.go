package layout

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/connectd/connectd/core"
)

// Flaw is the kind of thing that is wrong with a table, by which a diagnosis knows what to do about it.
type Flaw uint8

// The flaws.
const (
	Unusable  Flaw = iota // it is not the kind of table that will do
	NotUnique             // a column has no unique constraint
	GivenAnew             // a column's values come again after rows are deleted
	Mismapped             // another mapping or another name would do
	TooNew                // it was prepared by a newer connectd
)

// MisfitError says that a table cannot be used.
type MisfitError struct {
	About string // the column that it is because of, "id" or "order", or "table"
	Flaw  Flaw
	text  string
}

func (e *MisfitError) Error() string { return e.text }

// Misfit is a MisfitError about the column that the configuration calls so: "the id column ..." and what is wrong with it.
func Misfit(about, column string, flaw Flaw, text string) error {
	return &MisfitError{about, flaw, "the " + about + " column " + column + " " + text}
}

// Unfit is a MisfitError about the table.
func Unfit(flaw Flaw, format string, args ...any) error {
	return &MisfitError{"table", flaw, fmt.Sprintf(format, args...)}
}

// MisfitOf is what a diagnosis calls that which is wrong with a table that cannot be used, one of its columns or the table,
// and its flaw. An error of another kind is one about the table, which is unusable.
func MisfitOf(err error) (about string, flaw Flaw) {
	var misfit *MisfitError
	if errors.As(err, &misfit) {
		return misfit.About, misfit.Flaw
	}
	return "table", Unusable
}

// numbersBegin is why a row with such a number is not sent: fetches begin above 0.
const numbersBegin = "and rows are read from 1 on, so it would never be sent"

// CheckNumbers refuses to adopt a table with a row whose number, the lowest in its order column, is not above 0.
func CheckNumbers(table, column string, lowest int64) error {
	if lowest > 0 {
		return nil
	}
	return fmt.Errorf("table %s has a row whose %s is %d, %s: in one transaction delete such rows and insert again, without a value for %s, those that are to be sent; then init again",
		table, column, lowest, numbersBegin, column)
}

// Numbers adds whether there are pending rows that are never read: first is the first of them all, if there is one.
func Numbers(d *core.Diagnosis, column string, first []core.RowInfo) {
	if len(first) > 0 && first[0].Seq <= 0 {
		d.Fault("numbers", fmt.Sprintf("%s is %d in pending row %q, %s", column, first[0].Seq, first[0].ID, numbersBegin),
			"in one transaction delete the pending rows with "+column+" <= 0 and insert them again without a value for it, or set their state to 'skipped'")
		return
	}
	d.Fine("numbers", "no pending row has a %s below 1", column)
}

// EveryPending is the filter whose first row Numbers looks at.
func EveryPending() core.Filter {
	return core.Filter{State: core.Pending, After: -math.MaxInt64, Limit: 1}
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

// CheckVersion refuses a table whose schema a program that makes version own must not touch.
func CheckVersion(version, own int) error {
	if newest := own + 1; version > newest {
		return Unfit(TooNew, "it was prepared by a newer connectd (schema version %d, this one knows %d to %d): upgrade connectd here", version, own, newest)
	}
	return nil
}

// Initialised adds which version of the relay's tables is there, beside the one that this program makes.
func Initialised(d *core.Diagnosis, version, own, partitions int) {
	if version > own {
		d.Warn("initialised", fmt.Sprintf("the table was prepared by the next version of connectd (schema version %d, this one's is %d)", version, own), "upgrade connectd here too")
		return
	}
	d.Fine("initialised", "schema version %d, %d partitions", version, partitions)
}
