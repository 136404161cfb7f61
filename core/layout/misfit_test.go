package layout_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

func TestMisfit(t *testing.T) {
	err := fmt.Errorf("table outbox: %w", layout.Misfit("order", "n", layout.Mismapped, "is no number"))
	if about, flaw := layout.MisfitOf(err); about != "order" || flaw != layout.Mismapped || err.Error() != "table outbox: the order column n is no number" {
		t.Errorf("%s, %d: %v", about, flaw, err)
	}
	err = fmt.Errorf("table outbox: %w", layout.Unfit(layout.TooNew, "has version %d", 9))
	if about, flaw := layout.MisfitOf(err); about != "table" || flaw != layout.TooNew || err.Error() != "table outbox: has version 9" {
		t.Errorf("%s, %d: %v", about, flaw, err)
	}
	if about, flaw := layout.MisfitOf(errors.New("the id column has no unique constraint")); about != "table" || flaw != layout.Unusable {
		t.Error(about, flaw)
	}
}

func TestFindingsOfATable(t *testing.T) {
	var d core.Diagnosis
	if layout.Missing(&d, nil, "") || d.Findings != nil {
		t.Errorf("nothing is missing: %+v", d.Findings)
	}
	layout.Missing(&d, []string{"index i", "column c"}, "; or look")
	layout.Missing(&d, []string{"valid index i"}, "")
	layout.Missing(&d, []string{"column c", "index i"}, "")
	layout.Initialised(&d, 2, 2, 16)
	layout.Initialised(&d, 3, 2, 16)
	want := []core.Finding{
		{Level: core.Problem, What: "index", Say: "there is no index i, no column c", Do: "run `connectd init`, which makes what is missing; or look"},
		{Level: core.Problem, What: "index", Say: "there is no valid index i", Do: "run `connectd init`, which makes what is missing"},
		{Level: core.Problem, What: "initialised", Say: "there is no column c, no index i", Do: "run `connectd init`, which makes what is missing"},
		{Level: core.Fine, What: "initialised", Say: "schema version 2, 16 partitions"},
		{Level: core.Warning, What: "initialised", Say: "the table was prepared by the next version of connectd (schema version 3, this one's is 2)", Do: "upgrade connectd here too"},
	}
	if !slices.Equal(d.Findings, want) {
		t.Errorf("got  %+v\nwant %+v", d.Findings, want)
	}
}
