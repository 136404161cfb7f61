package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sourcetest"
)

// besides makes a table and one beside it whose id is of this type, and gives the configurations of both.
func besides(t *testing.T, kind string) (cfg, other postgres.Config) {
	t.Helper()
	schema := schemaOf(t)
	cfg = postgres.Config{DSN: services.Postgres(t), Table: schema + ".outbox"}
	other = postgres.Config{DSN: cfg.DSN, Table: schema + ".other", Columns: columns("id", "theId")}
	execute(t, `CREATE TABLE `+other.Table+` ("theId" `+kind+` UNIQUE, aggregateid text, payload text)`)
	initialise(t, cfg, postgres.InitOptions{})
	initialise(t, other, postgres.InitOptions{})
	return cfg, other
}

// placed stores a receipt of a command and gives where its row is.
func placed(t *testing.T, src *postgres.Source, command string) core.RowPlace {
	t.Helper()
	results, err := src.SaveReceipts(t.Context(), []core.Receipt{{Command: command, Status: core.ReceiptDone}})
	if err != nil {
		t.Fatal(err)
	}
	return results[0].Receipt.Row
}

// receiptsLaw audits the table.
func receiptsLaw(t *testing.T, src *postgres.Source) core.Law {
	t.Helper()
	a, err := src.Audit(t.Context(), core.AuditRequest{ReceiptWithin: core.Forever, Lease: time.Second, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, law := range a.Laws {
		if law.Name == core.LawReceipts {
			return law
		}
	}
	t.Fatal("there is no such law")
	return core.Law{}
}

// Another table's ids are found whatever their type is, and a command that is no value of the type is no error.
func TestIDTypesOfAnotherTable(t *testing.T) {
	for kind, id := range map[string]string{
		"uuid": "0b9c1c1e-1111-4222-8333-444455556666", "char(36)": "0b9c1c1e-1111-4222-8333-444455556666", "char(40)": "order-17", "varchar(20)": "order-17", "text": "order-17", "bigint": "17",
	} {
		t.Run(kind, func(t *testing.T) {
			cfg, other := besides(t, kind)
			execute(t, `INSERT INTO `+other.Table+` ("theId") VALUES ('`+id+`')`)
			src := open(t, cfg)
			for command, want := range map[string]core.RowPlace{id: core.RowElsewhere, "nobody's": core.RowUnknown, "9": core.RowUnknown, strings.ToUpper(id) + "0": core.RowUnknown} {
				if got := placed(t, src, command); got != want {
					t.Errorf("%s: %s, want %s", command, got, want)
				}
			}
			if law := receiptsLaw(t, src); len(law.Breaches) != 1 || law.Breaches[0].Total != 3 {
				t.Errorf("%+v", law)
			}
		})
	}
}

// Who cannot read another table leaves its receipts alone and says why, and goes on; the right to read its ids is enough.
func TestAnotherTableThatCannotBeRead(t *testing.T) {
	cfg, other := besides(t, "text")
	schema, _, _ := strings.Cut(cfg.Table, ".")
	role := fmt.Sprintf("role%x", rand.Uint64())
	execute(t, `CREATE ROLE `+role+` LOGIN PASSWORD 'hunter2'`)
	t.Cleanup(func() { execute(t, `DROP OWNED BY `+role, `DROP ROLE `+role) })
	in(t, cfg, `GRANT USAGE ON SCHEMA `+schema+` TO `+role, `GRANT SELECT, UPDATE, DELETE ON outbox TO `+role, `GRANT SELECT, INSERT, UPDATE, DELETE ON connectd_outbox, connectd_lease, connectd_worker,
		connectd_inflight, connectd_attempt, connectd_revision, connectd_receipt, connectd_cleaned, connectd_ledger TO `+role)
	in(t, cfg, `INSERT INTO other ("theId") VALUES ('theirs')`, `INSERT INTO connectd_receipt (command_id) VALUES ('nobody'), ('theirs')`)
	u, err := url.Parse(cfg.DSN)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "hunter2")
	cfg.DSN = u.String()
	src := open(t, cfg)
	if _, err := src.Acquire(t.Context(), "one", 100, time.Hour, false); err != nil {
		t.Fatal(err)
	}
	unread := func(why string) {
		t.Helper()
		if law := receiptsLaw(t, src); law.Checked || !strings.Contains(law.Say, "other ("+why) {
			t.Errorf("want %s: %+v", why, law)
		}
		if c, err := src.CleanReceipts(t.Context(), core.ReceiptsRequest{Owner: "one", Limit: 10}); err != nil || len(c.Removed) != 0 || len(c.Unknown) != 0 || c.Looked != 2 {
			t.Errorf("%s: %+v, %v", why, c, err)
		}
	}
	read := func() {
		t.Helper()
		if law := receiptsLaw(t, src); !law.Checked || len(law.Breaches) != 1 || strings.Join(law.Breaches[0].IDs, " ") != "nobody" {
			t.Errorf("%+v", law)
		}
		if c, err := src.CleanReceipts(t.Context(), core.ReceiptsRequest{Owner: "one", Limit: 10, Retention: time.Hour}); err != nil || len(c.Unknown) != 1 || c.Unknown[0].Command != "nobody" {
			t.Errorf("%+v, %v", c, err)
		}
	}
	unread("permission denied")
	in(t, cfg, `GRANT SELECT ("theId") ON other TO `+role)
	read()
	in(t, cfg, `ALTER TABLE other ENABLE ROW LEVEL SECURITY`)
	unread("query would be affected by row-level security policy")
	in(t, cfg, `ALTER TABLE other DISABLE ROW LEVEL SECURITY`)
	tx, err := application(t, services.Postgres(t)).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), `LOCK TABLE `+other.Table); err != nil {
		t.Fatal(err)
	}
	unread("canceling statement due to lock timeout")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	read()
	in(t, cfg, `ALTER TABLE other RENAME COLUMN "theId" TO id`)
	unread("it has no column theId")
	in(t, cfg, `ALTER TABLE other RENAME COLUMN id TO "theId"`, `ALTER TABLE other DROP CONSTRAINT "other_theId_key"`, `DROP INDEX connectd_other_pending, connectd_other_stopped`,
		`ALTER TABLE other ALTER COLUMN "theId" TYPE json USING to_json("theId")`)
	unread("its column theId is of type json")
	in(t, cfg, `DROP TABLE other`)
	unread("it is not there")
}

// Where init has not noted yet which column has the ids, it is asked to, and until then nothing is said of receipts that may
// be the other table's.
func TestAnInitialisedTableGetsTheNameOfItsIDs(t *testing.T) {
	cfg, other := besides(t, "text")
	in(t, cfg, `ALTER TABLE connectd_outbox DROP COLUMN id_column`)
	for _, each := range []postgres.Config{cfg, other} {
		src, err := postgres.Open(t.Context(), each)
		if err == nil {
			src.Close()
		}
		if !errors.Is(err, core.ErrNotInitialised) || !strings.Contains(err.Error(), "name of the id column") {
			t.Errorf("the error is %v", err)
		}
	}
	sourcetest.WantFinding(t, postgres.Diagnose(t.Context(), cfg), core.Problem, "initialised", "name of the id column", "connectd init")
	initialise(t, cfg, postgres.InitOptions{})
	src := open(t, cfg)
	if got := placed(t, src, "nobody"); got != core.RowElsewhere {
		t.Errorf("the row is %s", got)
	}
	if law := receiptsLaw(t, src); law.Checked || !strings.Contains(law.Say, "other (connectd_outbox does not name its id column)") {
		t.Errorf("%+v", law)
	}
	initialise(t, other, postgres.InitOptions{})
	open(t, other)
	if law := receiptsLaw(t, src); len(law.Breaches) != 1 {
		t.Errorf("%+v", law)
	}
	for _, each := range []postgres.Config{cfg, other} {
		if plan, err := postgres.Plan(t.Context(), each, postgres.InitOptions{}); err != nil || len(plan.Steps) > 0 {
			t.Errorf("there is still something to do: %+v, %v", plan, err)
		}
	}
}
