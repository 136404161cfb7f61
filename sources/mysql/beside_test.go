package mysql_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

// besides makes a table and one beside it whose id is of this type, and gives the configurations of both.
func (srv server) besides(t *testing.T, kind string) (cfg, other mysql.Config) {
	t.Helper()
	cfg = srv.config(t)
	other = cfg
	other.Table, other.Columns = "other", columns("id", "theId")
	srv.execute(t, cfg, `CREATE TABLE other (theId `+kind+` PRIMARY KEY, aggregateid varchar(64), payload longblob) ENGINE=InnoDB`)
	initialise(t, cfg, mysql.InitOptions{})
	initialise(t, other, mysql.InitOptions{})
	return cfg, other
}

// receiptsLaw audits the table.
func receiptsLaw(t *testing.T, src *mysql.Source) core.Law {
	t.Helper()
	a, err := src.Audit(t.Context(), core.AuditRequest{ReceiptWithin: core.Forever, Lease: time.Second, Timeout: time.Minute})
	must(t, err)
	for _, law := range a.Laws {
		if law.Name == core.LawReceipts {
			return law
		}
	}
	t.Fatal("there is no such law")
	return core.Law{}
}

// Another table's ids are found whatever their type and collation are, and a command that is no value of the type is no error.
func TestIDTypesOfAnotherTable(t *testing.T) {
	const uuid = "0b9c1c1e-1111-4222-8333-444455556666"
	onServers(t, func(t *testing.T, srv server) {
		kinds := map[string]string{
			"char(36) CHARACTER SET ascii":                            uuid,
			"char(40) CHARACTER SET latin1 COLLATE latin1_swedish_ci": "Öl-17",
			"varchar(200) CHARACTER SET utf8mb4":                      "Öl-17",
			"varchar(200) CHARACTER SET utf16":                        "Öl-17",
			"varbinary(200)":                                          "Öl-17", "binary(16)": uuid, "bigint": "17",
		}
		if srv.name == "MariaDB" {
			kinds["uuid"] = uuid
		}
		for kind, id := range kinds {
			t.Run(kind, func(t *testing.T) {
				cfg, _ := srv.besides(t, kind)
				var stored any = id
				if kind == "binary(16)" {
					raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
					must(t, err)
					stored = raw
				}
				_, err := open(t, cfg.DSN).Exec(`INSERT INTO other (theId) VALUES (?)`, stored)
				must(t, err)
				src := source(t, cfg)
				for command, want := range map[string]core.RowPlace{id: core.RowElsewhere, "nobody's €": core.RowUnknown, "9": core.RowUnknown, strings.ToUpper(id) + "0": core.RowUnknown} {
					results, err := src.SaveReceipts(t.Context(), []core.Receipt{{Command: command, Status: core.ReceiptDone}})
					must(t, err)
					if got := results[0].Receipt.Row; got != want {
						t.Errorf("%s: %s, want %s", command, got, want)
					}
				}
				if law := receiptsLaw(t, src); len(law.Breaches) != 1 || law.Breaches[0].Total != 3 {
					t.Errorf("%+v", law)
				}
			})
		}
	})
}

// Who cannot read another table leaves its receipts alone and says why, and goes on; the right to read its ids is enough.
func TestAnotherTableThatCannotBeRead(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		owner, _ := srv.besides(t, "varchar(64)")
		user := fmt.Sprintf("user%d", databases.Add(1))
		account := "'" + user + "'@'%'"
		srv.execute(t, owner, `CREATE USER `+account+` IDENTIFIED BY 'hunter2'`)
		t.Cleanup(func() { srv.execute(t, mysql.Config{DSN: srv.dsn}, `DROP USER `+account) })
		srv.execute(t, owner, `GRANT SELECT, UPDATE, DELETE ON outbox TO `+account)
		for _, name := range []string{"outbox", "lease", "worker", "inflight", "attempt", "revision", "receipt", "cleaned", "ledger"} {
			srv.execute(t, owner, `GRANT SELECT, INSERT, UPDATE, DELETE ON connectd_`+name+` TO `+account)
		}
		srv.execute(t, owner, `INSERT INTO other (theId) VALUES ('theirs')`, `INSERT INTO connectd_receipt (command_id) VALUES ('nobody'), ('theirs')`)
		cfg := owner
		cfg.DSN = dsnOf(t, cfg, func(c *driver.Config) { c.User, c.Passwd = user, "hunter2" })
		src := source(t, cfg)
		acquired(t, src, "one")
		unread := func(why string) {
			t.Helper()
			if law := receiptsLaw(t, src); law.Checked || !strings.Contains(law.Say, "other (") || !strings.Contains(law.Say, why) || strings.Contains(law.Say, user) {
				t.Errorf("want %s: %+v", why, law)
			}
			if c, err := src.CleanReceipts(t.Context(), core.ReceiptsRequest{Owner: "one", Limit: 10}); err != nil || len(c.Removed) != 0 || len(c.Unknown) != 0 || c.Looked != 2 {
				t.Errorf("%s: %+v, %v", why, c, err)
			}
		}
		unread("denied")
		srv.execute(t, owner, `GRANT SELECT (aggregateid) ON other TO `+account)
		unread("no column theId of it can be seen")
		srv.execute(t, owner, `GRANT SELECT (theId) ON other TO `+account)
		if law := receiptsLaw(t, src); !law.Checked || len(law.Breaches) != 1 || strings.Join(law.Breaches[0].IDs, " ") != "nobody" {
			t.Errorf("%+v", law)
		}
		if c, err := src.CleanReceipts(t.Context(), core.ReceiptsRequest{Owner: "one", Limit: 10, Retention: time.Hour}); err != nil || len(c.Unknown) != 1 || c.Unknown[0].Command != "nobody" {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// Where init has not noted yet which column has the ids, it is asked to, and until then nothing is said of receipts that may
// be the other table's.
func TestAnInitialisedTableGetsTheNameOfItsIDs(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, other := srv.besides(t, "varchar(64)")
		srv.execute(t, cfg, `ALTER TABLE connectd_outbox DROP COLUMN id_column`, `INSERT INTO connectd_receipt (command_id) VALUES ('nobody')`)
		for _, each := range []mysql.Config{cfg, other} {
			src, err := mysql.Open(t.Context(), each)
			if err == nil {
				src.Close()
			}
			if !errors.Is(err, core.ErrNotInitialised) || !strings.Contains(err.Error(), "name of the id column") {
				t.Errorf("the error is %v", err)
			}
		}
		sourcetest.WantFinding(t, mysql.Diagnose(t.Context(), cfg), core.Problem, "initialised", "name of the id column", "connectd init")
		initialise(t, cfg, mysql.InitOptions{})
		src := source(t, cfg)
		list, err := src.Receipts(t.Context(), core.ReceiptFilter{})
		if err != nil || len(list) != 1 || list[0].Row != core.RowElsewhere {
			t.Errorf("%+v, %v", list, err)
		}
		if law := receiptsLaw(t, src); law.Checked || !strings.Contains(law.Say, "other (connectd_outbox does not name its id column)") {
			t.Errorf("%+v", law)
		}
		initialise(t, other, mysql.InitOptions{})
		source(t, other)
		if law := receiptsLaw(t, src); len(law.Breaches) != 1 {
			t.Errorf("%+v", law)
		}
		for _, each := range []mysql.Config{cfg, other} {
			if plan, err := mysql.Plan(t.Context(), each, mysql.InitOptions{}); err != nil || len(plan.Steps) > 0 {
				t.Errorf("there is still something to do: %+v, %v", plan, err)
			}
		}
	})
}
