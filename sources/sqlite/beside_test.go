package sqlite_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

// Where init has not noted yet which column has the ids, it is asked to, and until then nothing is said of receipts that may
// be the other table's.
func TestAnInitialisedTableGetsTheNameOfItsIDs(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	other := sqlite.Config{Path: cfg.Path, Table: "other", Columns: columns("id", "theId")}
	initialise(t, cfg)
	initialise(t, other)
	execute(t, cfg.Path, `ALTER TABLE connectd_outbox DROP COLUMN id_column`, `INSERT INTO connectd_receipt (command_id) VALUES ('nobody')`)
	for _, each := range []sqlite.Config{cfg, other} {
		src, err := sqlite.Open(t.Context(), each)
		if err == nil {
			src.Close()
		}
		if !errors.Is(err, core.ErrNotInitialised) || !strings.Contains(err.Error(), "name of the id column") {
			t.Errorf("the error is %v", err)
		}
	}
	sourcetest.WantFinding(t, sqlite.Diagnose(t.Context(), cfg), core.Problem, "initialised", "name of the id column", "connectd init")
	initialise(t, cfg)
	src := open(t, cfg)
	list, err := src.Receipts(t.Context(), core.ReceiptFilter{})
	if err != nil || len(list) != 1 || list[0].Row != core.RowElsewhere {
		t.Errorf("%+v, %v", list, err)
	}
	law := func() core.Law {
		t.Helper()
		a, err := src.Audit(t.Context(), core.AuditRequest{ReceiptWithin: core.Forever, Lease: time.Second, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return a.Laws[2]
	}
	if l := law(); l.Name != core.LawReceipts || l.Checked || !strings.Contains(l.Say, "other (connectd_outbox does not name its id column)") {
		t.Errorf("%+v", l)
	}
	initialise(t, other)
	open(t, other)
	if l := law(); len(l.Breaches) != 1 {
		t.Errorf("%+v", l)
	}
	for _, each := range []sqlite.Config{cfg, other} {
		if plan, err := sqlite.Plan(t.Context(), each, sqlite.InitOptions{}); err != nil || len(plan.Steps) > 0 {
			t.Errorf("there is still something to do: %+v, %v", plan, err)
		}
	}
}
