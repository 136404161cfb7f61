package mysql_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

// Other tests' transactions may be open, and a test server need not be durable.
func wantSound(t *testing.T, d core.Diagnosis) {
	t.Helper()
	sourcetest.WantSound(t, d, "transactions", "durability")
	if len(d.Leases) != mysql.DefaultPartitions {
		t.Errorf("the table was not looked at: %+v", d)
	}
}

const someRows = `INSERT INTO outbox (id, aggregateid, payload) SELECT uuid(), 'k', 'x' FROM information_schema.collations LIMIT 100`

// A sound table is found sound, empty or not, and nothing in it is changed.
func TestDoctorOfASoundTable(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for name, ddl := range map[string]string{"new": "", "adopted": `CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob) ENGINE=InnoDB`} {
			t.Run(name, func(t *testing.T) {
				cfg := srv.config(t)
				if ddl != "" {
					srv.execute(t, cfg, ddl)
					sourcetest.WantFinding(t, mysql.Diagnose(t.Context(), cfg), core.Problem, "initialised", "connectd_lease", "connectd init")
				}
				initialise(t, cfg, mysql.InitOptions{})
				wantSound(t, mysql.Diagnose(t.Context(), cfg))
				srv.execute(t, cfg, someRows)
				sums := func() string {
					var all []string
					db := open(t, cfg.DSN)
					rows, err := db.Query(`CHECKSUM TABLE outbox, connectd_outbox, connectd_lease, connectd_worker, connectd_inflight, connectd_attempt, connectd_revision, connectd_ledger, connectd_receipt, connectd_cleaned EXTENDED`)
					must(t, err)
					defer rows.Close()
					for rows.Next() {
						var table, sum string
						must(t, rows.Scan(&table, &sum))
						all = append(all, table+" "+sum)
					}
					must(t, rows.Err())
					return strings.Join(all, ", ")
				}
				before := sums()
				wantSound(t, mysql.Diagnose(t.Context(), cfg))
				if after := sums(); after != before {
					t.Errorf("before: %s\nafter:  %s", before, after)
				}
				srv.execute(t, cfg, `INSERT INTO connectd_receipt (command_id) VALUES ('a')`)
				if !mysql.Diagnose(t.Context(), cfg).Receipts {
					t.Error("the receipt was not seen")
				}
			})
		}
	})
}

// What is wrong with the table is named, and what to do about it.
func TestDoctorOfTheTable(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		hide := `ALTER TABLE outbox ALTER INDEX connectd_pending INVISIBLE`
		if srv.name == "MariaDB" {
			hide = `ALTER TABLE outbox ALTER INDEX connectd_pending IGNORED`
		}
		for name, c := range map[string]struct {
			breaks []string
			level  core.Level
			what   string
			words  []string
		}{
			"no index":         {[]string{`ALTER TABLE outbox DROP INDEX connectd_pending`}, core.Problem, "index", []string{"no index connectd_pending", "connectd init"}},
			"a hidden index":   {[]string{hide}, core.Problem, "plan", []string{"invisible or ignored"}},
			"another index":    {[]string{`ALTER TABLE outbox DROP INDEX connectd_pending`, `ALTER TABLE outbox ADD INDEX connectd_pending (state, available_at)`}, core.Problem, "plan", []string{"sorts", "connectd init"}},
			"a useless index":  {[]string{`ALTER TABLE outbox DROP INDEX connectd_pending`, `ALTER TABLE outbox ADD INDEX connectd_pending (crashes)`}, core.Problem, "plan", []string{"does not use the index", "connectd init"}},
			"no column":        {[]string{`ALTER TABLE outbox DROP COLUMN last_error`}, core.Problem, "initialised", []string{"last_error", "connectd init"}},
			"no payload":       {[]string{`ALTER TABLE outbox DROP COLUMN payload`}, core.Problem, "table", []string{"no column payload", "columns.payload", "correct source.columns"}},
			"no unique id":     {[]string{`ALTER TABLE outbox DROP INDEX id`}, core.Problem, "id", []string{"no unique constraint", "ADD UNIQUE"}},
			"no numbers":       {[]string{`DROP TABLE outbox`, `CREATE TABLE outbox (id varchar(200) PRIMARY KEY, aggregateid text, payload blob, seq bigint NOT NULL UNIQUE)`}, core.Problem, "order", []string{"map columns.order", "correct source.columns"}},
			"no lease table":   {[]string{`DROP TABLE connectd_lease`}, core.Problem, "initialised", []string{"connectd_lease"}},
			"no registration":  {[]string{`DELETE FROM connectd_outbox`}, core.Problem, "initialised", []string{"connectd init"}},
			"the next version": {[]string{`UPDATE connectd_outbox SET version = 2`}, core.Warning, "initialised", []string{"upgrade connectd"}},
			"a far version":    {[]string{`UPDATE connectd_outbox SET version = 3`}, core.Problem, "table", []string{"upgrade connectd"}},
			"no table":         {[]string{`DROP TABLE outbox`}, core.Problem, "table", []string{"there is no table", "connectd init"}},
			"no transactions":  {[]string{`DROP TABLE outbox`, `CREATE TABLE outbox (id int PRIMARY KEY) ENGINE=MyISAM`}, core.Problem, "table", []string{"InnoDB"}},
			"another mapping":  {[]string{`UPDATE connectd_outbox SET partition_by = 'x'`}, core.Problem, "initialised", []string{"map columns.id"}},
		} {
			t.Run(name, func(t *testing.T) {
				cfg := srv.config(t)
				initialise(t, cfg, mysql.InitOptions{})
				srv.execute(t, cfg, append([]string{someRows, `ANALYZE TABLE outbox`}, c.breaks...)...)
				d := mysql.Diagnose(t.Context(), cfg)
				sourcetest.WantFinding(t, d, c.level, c.what, c.words...)
				sourcetest.WantFinding(t, d, core.Fine, "server")
			})
		}
	})
}

// dsnOf is cfg's with changes.
func dsnOf(t *testing.T, cfg mysql.Config, change func(c *driver.Config)) string {
	t.Helper()
	c, err := driver.ParseDSN(cfg.DSN)
	must(t, err)
	change(c)
	return c.FormatDSN()
}

// A server that cannot be used is told from one that is not there, and no secret is shown.
func TestDoctorOfTheServer(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		good := srv.config(t)
		for name, c := range map[string]struct{ dsn, words string }{
			"a wrong password": {dsnOf(t, good, func(c *driver.Config) { c.Passwd = "hunter2" }), "password in the dsn"},
			"no database":      {dsnOf(t, good, func(c *driver.Config) { c.DBName = "nothing_there" }), "create the database"},
			"nobody there":     {dsnOf(t, good, func(c *driver.Config) { c.Addr = "127.0.0.1:1" }), "whether the server runs"},
			"no dsn":           {"a:hunter2@b", "correct the dsn"},
			"another option":   {dsnOf(t, good, func(c *driver.Config) { c.Params = map[string]string{"tsl": "hunter2"} }), "options in the dsn"},
			"a variable":       {dsnOf(t, good, func(c *driver.Config) { c.Params = map[string]string{"hunter2": "1"} }), "options in the dsn"},
			"another user":     {dsnOf(t, good, func(c *driver.Config) { c.User = "hunter2" }), "password in the dsn"},
			"TLS":              {dsnOf(t, good, func(c *driver.Config) { c.TLSConfig = "true" }), "certificate"},
		} {
			t.Run(name, func(t *testing.T) {
				cfg := good
				cfg.DSN = c.dsn
				d := mysql.Diagnose(t.Context(), cfg)
				sourcetest.WantFinding(t, d, core.Problem, "server", c.words)
				_, err := mysql.Open(t.Context(), cfg)
				if err == nil || strings.Contains(fmt.Sprint(d, err), "hunter2") {
					t.Errorf("the password is shown: %+v, %v", d, err)
				}
			})
		}
	})
	for number, words := range map[uint16]string{
		1129: "host_cache", 1130: "from this machine", 1203: "own limit", 1226: "own limit", 1820: "new password", 1862: "new password", 3118: "UNLOCK", 4151: "UNLOCK", 3159: "tls=true",
	} {
		if got := mysql.Unreachable(fmt.Errorf("connect: %w", &driver.MySQLError{Number: number})); !strings.Contains(got, words) {
			t.Errorf("%d: %s", number, got)
		}
	}
	for _, version := range []string{"5.7.44", "10.5.9-MariaDB", "8.0.11-TiDB-v7.5.0"} {
		sourcetest.WantFinding(t, mysql.JudgeVersion(t.Context(), version), core.Problem, "version", version[:3], "MariaDB 10.6 or later")
	}
}

// The rights that are missing are named, by GRANTs that suffice.
func TestDoctorOfTheRights(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for _, deletes := range []bool{false, true} {
			t.Run(fmt.Sprint("delete on publish ", deletes), func(t *testing.T) {
				cfg := srv.config(t)
				initialise(t, cfg, mysql.InitOptions{})
				user := fmt.Sprintf("'user%d'@'%%'", databases.Add(1))
				srv.execute(t, cfg, `CREATE USER `+user+` IDENTIFIED BY 'hunter2'`)
				owner := cfg
				t.Cleanup(func() { srv.execute(t, mysql.Config{DSN: srv.dsn}, `DROP USER `+user) })
				cfg.DeletePublished = deletes
				cfg.DSN = dsnOf(t, cfg, func(c *driver.Config) { c.User, c.Passwd = strings.Trim(strings.Split(user, "@")[0], "'"), "hunter2" })
				sourcetest.WantFinding(t, mysql.Diagnose(t.Context(), cfg), core.Problem, "server", "grant the user rights")
				srv.execute(t, owner, `GRANT SELECT ON *.* TO `+user)
				d := mysql.Diagnose(t.Context(), cfg)
				sourcetest.WantFinding(t, d, core.Warning, "transactions", "PROCESS", "source.max_transaction (1m0s)")
				f := sourcetest.WantFinding(t, d, core.Problem, "rights", "UPDATE", "INSERT", "connectd_inflight")
				for _, grant := range strings.Split(f.Do, "; ") {
					if deletes || !strings.Contains(grant, "`outbox`") {
						srv.execute(t, owner, grant)
					}
				}
				if !deletes {
					srv.execute(t, owner, "GRANT UPDATE ON outbox TO "+user)
					f := sourcetest.WantFinding(t, mysql.Diagnose(t.Context(), cfg), core.Warning, "rights", "never cleaned up")
					srv.execute(t, owner, f.Do)
				}
				srv.execute(t, owner, `REVOKE SELECT ON *.* FROM `+user)
				f = sourcetest.WantFinding(t, mysql.Diagnose(t.Context(), cfg), core.Problem, "rights", "SELECT")
				for _, table := range []string{"outbox", "connectd_outbox", "connectd_lease", "connectd_worker", "connectd_inflight", "connectd_attempt", "connectd_revision", "connectd_ledger", "connectd_receipt", "connectd_cleaned"} {
					srv.execute(t, owner, "GRANT SELECT ON "+table+" TO "+user)
				}
				srv.execute(t, owner, `GRANT PROCESS ON *.* TO `+user)
				wantSound(t, mysql.Diagnose(t.Context(), cfg))
				srv.execute(t, owner, `INSERT INTO outbox (id, aggregateid, payload) VALUES ('a', 'k', 'x'), ('b', 'k', 'x')`)
				useIt(t, cfg)
			})
		}
	})
}

// useIt does with a source what a daemon does, under the rights that doctor found sufficient: of rows a and b of one key, one
// is published, the other is dead and then retried.
func useIt(t *testing.T, cfg mysql.Config) {
	t.Helper()
	src := source(t, cfg)
	ctx := t.Context()
	_, err := src.Heartbeat(ctx, "me", nil, time.Minute)
	must(t, err)
	taken, err := src.Acquire(ctx, "me", 100, time.Minute, false)
	must(t, err)
	for _, a := range taken {
		page, err := sourcetest.Page(ctx, src, core.FetchRequest{Part: a.Lease.Part, Limit: 10})
		must(t, err)
		for i, r := range page.Rows {
			batch, settle := int64(i+1), core.Settlement{Seq: r.Record.Seq, State: core.Published}
			if i == 1 {
				settle.State, settle.Failure = core.Dead, &core.Failure{Code: "x"}
			}
			must(t, src.Step(ctx, "me", []core.Change{{Lease: a.Lease, Announce: []core.Announcement{{Batch: batch, Seqs: []int64{r.Record.Seq}}}}}))
			must(t, src.Step(ctx, "me", []core.Change{{Lease: a.Lease, Settle: []core.Settlement{settle}, Finished: []core.Finished{{Batch: batch, Keep: i == 1}}}}))
		}
	}
	must(t, src.Retry(ctx, core.Act{ID: "b", By: "me"}))
	must(t, src.Leave(ctx, "me"))
}

func TestDoctorOfTransactions(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{})
		srv.execute(t, cfg, someRows)
		db := open(t, cfg.DSN)
		for statement, words := range map[string]string{
			`DELETE FROM outbox LIMIT 1`: "has written is open",
			`SELECT * FROM outbox`:       "is open since",
		} {
			tx, err := db.Begin()
			must(t, err)
			_, err = tx.Exec(statement)
			must(t, err)
			var id int64
			must(t, tx.QueryRow(`SELECT CONNECTION_ID()`).Scan(&id))
			// The server's list may be a tenth of a second old, and stays so while it is asked for more often than that.
			var seen core.Finding
			for asked := time.Now(); !strings.Contains(seen.Say, words); time.Sleep(200 * time.Millisecond) {
				d := mysql.DiagnoseWith(t.Context(), cfg, 0)
				for _, f := range d.Findings {
					if f.What == "transactions" && strings.Contains(f.Do, fmt.Sprintf("KILL %d ", id)) {
						seen = f
					}
				}
				if time.Since(asked) > 30*time.Second {
					t.Fatalf("%s: of connection %d it finds %+v", statement, id, d.Findings)
				}
			}
			must(t, tx.Rollback())
			if age, is := strings.CutPrefix(strings.SplitN(seen.Say, ", of", 2)[0], "a transaction is open since "); is {
				if d, err := time.ParseDuration(age); err != nil || d > time.Minute {
					t.Errorf("its age: %q", age) // a zone is not taken for an age
				}
			}
		}
	})
}

// Who locks the table keeps doctor for a bounded time.
func TestDoctorOfALockedTable(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{})
		conn, err := open(t, cfg.DSN).Conn(context.Background())
		must(t, err)
		defer conn.Close()
		_, err = conn.ExecContext(context.Background(), `LOCK TABLES outbox WRITE`)
		must(t, err)
		begun := time.Now()
		sourcetest.WantFinding(t, mysql.Diagnose(t.Context(), cfg), core.Problem, "table", "no answer within", "PROCESSLIST")
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		_, err = conn.ExecContext(context.Background(), `UNLOCK TABLES`)
		must(t, err)
	})
}

// Of a replica, and of a server that may lose commits, doctor says what it is.
func TestDoctorOfAServerThatIsChanged(t *testing.T) {
	onOwnServers(t, func(t *testing.T, srv ownServer) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{})
		admin := open(t, srv.dsn)
		set := func(assignment string) {
			_, err := admin.Exec(`SET GLOBAL ` + assignment)
			must(t, err)
		}
		set(`read_only = ON`)
		sourcetest.WantFinding(t, mysql.Diagnose(t.Context(), cfg), core.Problem, "server", "read-only", "name the primary")
		set(`read_only = OFF`)
		set(`innodb_flush_log_at_trx_commit = 2`)
		d := mysql.Diagnose(t.Context(), cfg)
		sourcetest.WantFinding(t, d, core.Warning, "durability", "is 2")
		wantSound(t, d)
	})
}
