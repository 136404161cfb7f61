package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

func TestMain(m *testing.M) {
	sourcetest.Abroad()
	goleak.VerifyTestMain(m)
}

// server is a server under test; dsn is that of a user who may do everything.
type server struct{ name, dsn string }

// onServers runs a test on each kind of server.
func onServers(t *testing.T, run func(t *testing.T, srv server)) {
	t.Helper()
	t.Run("MySQL", func(t *testing.T) { run(t, server{"MySQL", services.MySQL(t)}) })
	t.Run("MariaDB", func(t *testing.T) { run(t, server{"MariaDB", services.MariaDB(t)}) })
}

func TestConformance(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		one := srv.config(t)
		h := sourcetest.Harness{
			AnyHeaders: true, Overlap: true,
			New: func(t *testing.T, o sourcetest.Options) sourcetest.Table {
				cfg := one
				if o.OwnReceipts {
					cfg = srv.config(t)
				}
				cfg.Table, cfg.DeletePublished = fmt.Sprint("outbox", databases.Add(1)), o.DeletePublished
				initialise(t, cfg, mysql.InitOptions{})
				return table(t, cfg)
			},
		}
		sourcetest.Run(t, h)
		sourcetest.RunAudit(t, h)
	})
}

// An adopted table, with names that need quoting and columns of bytes, through prepared statements and with options that are
// not ours: the same source to everybody.
func TestConformanceOfAnAdoptedTable(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		const options = "interpolateParams=false&parseTime=true&loc=Europe%2FLondon&time_zone=%27-07%3A00%27"
		one := srv.config(t)
		one.DSN = withOptions(one.DSN, options)
		h := sourcetest.Harness{
			AnyText: true, AnyHeaders: true, Overlap: true,
			New: func(t *testing.T, o sourcetest.Options) sourcetest.Table {
				cfg := one
				if o.OwnReceipts {
					cfg.DSN = withOptions(srv.config(t).DSN, options)
				}
				cfg.Table, cfg.DeletePublished = fmt.Sprintf("`My ``Outbox`` %d`", databases.Add(1)), o.DeletePublished
				cfg.Columns = columns("id", "command_id", "key", "select", "route", "seq", "type", "k i n d", "headers", "h`h", "created", "at", "order", "connectd number")
				srv.execute(t, cfg, "CREATE TABLE "+cfg.Table+" (command_id varbinary(250) PRIMARY KEY, `select` varbinary(250), `k i n d` varbinary(250), payload longblob, `h``h` longblob, seq varbinary(250), at timestamp(6) NOT NULL DEFAULT current_timestamp(6)) ENGINE=InnoDB")
				initialise(t, cfg, mysql.InitOptions{Partitions: 3})
				return table(t, cfg)
			},
		}
		sourcetest.Run(t, h)
		sourcetest.RunAudit(t, h)
	})
}

var databases atomic.Int64

// config is a database of its own for the test, with no table yet.
func (srv server) config(t *testing.T) mysql.Config {
	t.Helper()
	name := fmt.Sprintf("connectd_test_%d_%d", os.Getpid(), databases.Add(1))
	admin := open(t, srv.dsn)
	if _, err := admin.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec("DROP DATABASE IF EXISTS " + name); err != nil {
			t.Error(err)
		}
	})
	c, err := driver.ParseDSN(srv.dsn)
	if err != nil {
		t.Fatal(err)
	}
	c.DBName = name
	return mysql.Config{DSN: c.FormatDSN(), Table: "outbox"}
}

func withOptions(dsn, options string) string {
	if strings.Contains(dsn, "?") {
		return dsn + "&" + options
	}
	return dsn + "?" + options
}

// open connects as an application does.
func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	c, err := driver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(driver.Charset("utf8mb4", "")); err != nil {
		t.Fatal(err)
	}
	c.ParseTime, c.InterpolateParams, c.Logger = true, true, &driver.NopLogger{}
	connector, err := driver.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

// execute runs statements in the test's database.
func (srv server) execute(t *testing.T, cfg mysql.Config, statements ...string) {
	t.Helper()
	db := open(t, cfg.DSN)
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// columns maps pairs of names.
func columns(pairs ...string) map[string]*string {
	m := map[string]*string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &pairs[i+1]
	}
	return m
}

func initialise(t *testing.T, cfg mysql.Config, opt mysql.InitOptions) {
	t.Helper()
	if err := initWith(t.Context(), cfg, opt); err != nil {
		t.Fatal(err)
	}
}

func initWith(ctx context.Context, cfg mysql.Config, opt mysql.InitOptions) error {
	plan, err := mysql.Plan(ctx, cfg, opt)
	if err != nil {
		return err
	}
	return mysql.Apply(ctx, cfg, opt, plan)
}

func source(t *testing.T, cfg mysql.Config) *mysql.Source {
	t.Helper()
	src, err := mysql.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

// name is a column's name in the table, quoted.
func name(cfg mysql.Config, column, byDefault string) string {
	if mapped := cfg.Columns[column]; mapped != nil {
		byDefault = *mapped
	}
	return "`" + strings.ReplaceAll(byDefault, "`", "``") + "`"
}

// table gives cfg's table to the suite.
func table(t *testing.T, cfg mysql.Config) sourcetest.Table {
	t.Helper()
	db := open(t, cfg.DSN)
	tbl := strings.ReplaceAll(strings.Trim(cfg.Table, "`"), "``", "`")
	insert := `INSERT INTO ` + cfg.Table + ` (` + name(cfg, "id", "id") + `, ` + name(cfg, "key", "aggregateid") + `, ` + name(cfg, "route", "aggregatetype") +
		`, ` + name(cfg, "type", "type") + `, payload, ` + name(cfg, "headers", "headers") + `) VALUES (?, ?, ?, ?, ?, ?)`
	begin := func(t *testing.T) sourcetest.Tx {
		t.Helper()
		tx, err := db.Begin()
		must(t, err)
		return transaction{tx, insert}
	}
	return withBooks(db, cfg, tbl, sourcetest.Table{
		Open: func(t *testing.T) core.Source {
			src, err := mysql.Open(t.Context(), cfg)
			must(t, err)
			return src
		},
		Begin: begin,
		Insert: func(t *testing.T, rows ...sourcetest.Row) {
			t.Helper()
			x := begin(t)
			x.Insert(t, rows...)
			x.Commit(t)
		},
		NextSeq: func(t *testing.T, seq int64) {
			_, err := db.Exec(fmt.Sprintf(`ALTER TABLE %s AUTO_INCREMENT = %d`, cfg.Table, seq))
			must(t, err)
		},
		Beside: func(t *testing.T) sourcetest.Table {
			cfg := cfg
			cfg.Table, cfg.Columns = "`the ``beside`", columns("id", "command `id")
			initialise(t, cfg, mysql.InitOptions{})
			return table(t, cfg)
		},
		Drop: func(t *testing.T) {
			_, err := db.Exec(`DROP TABLE ` + cfg.Table)
			must(t, err)
		},
		Announce: func(t *testing.T, l core.Lease, a core.Announcement) func() {
			tx, err := db.Begin()
			must(t, err)
			var part int
			must(t, tx.QueryRow(`SELECT part FROM connectd_lease WHERE tbl = ? AND part = ? AND epoch = ? FOR UPDATE`, tbl, l.Part, l.Epoch).Scan(&part))
			_, err = tx.Exec(`INSERT INTO connectd_inflight (tbl, part, epoch, batch, seqs, sent_at) VALUES (?, ?, ?, ?, ?, utc_timestamp(6))`,
				tbl, l.Part, l.Epoch, a.Batch, strings.ReplaceAll(fmt.Sprint(a.Seqs), " ", ","))
			must(t, err)
			return func() { must(t, tx.Commit()) }
		},
		Receipt: func(t *testing.T, id string, r core.Receipt) {
			t.Helper()
			_, err := db.Exec(`INSERT INTO connectd_receipt (command_id, consumer, status, result_ref) VALUES (?, ?, ?, ?)`, id, r.Consumer, r.Status, r.ResultRef)
			must(t, err)
		},
		Ahead: func(t *testing.T, d time.Duration) {
			t.Helper()
			_, err := db.Exec(`UPDATE connectd_worker SET heartbeat = heartbeat + INTERVAL ? MICROSECOND WHERE tbl = ?`, d.Microseconds(), tbl)
			must(t, err)
		},
		Lock: func(t *testing.T) func() {
			conn, err := db.Conn(context.Background())
			must(t, err)
			_, err = conn.ExecContext(context.Background(), `LOCK TABLES `+cfg.Table+` WRITE, connectd_outbox WRITE, connectd_lease WRITE, connectd_inflight WRITE, connectd_worker WRITE, connectd_attempt WRITE`)
			must(t, err)
			return func() {
				_, err := conn.ExecContext(context.Background(), `UNLOCK TABLES`)
				must(t, err)
				conn.Close()
			}
		},
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// transaction is an application's.
type transaction struct {
	tx     *sql.Tx
	insert string
}

func (x transaction) Insert(t *testing.T, rows ...sourcetest.Row) {
	t.Helper()
	for _, r := range rows {
		payload := r.Payload
		if payload == nil {
			payload = []byte{}
		}
		_, err := x.tx.Exec(x.insert, r.ID, sql.NullString{String: r.Key, Valid: r.Keyed}, null(r.Route), null(r.Type), payload, null(r.Headers))
		must(t, err)
	}
}

func (x transaction) Commit(t *testing.T) {
	t.Helper()
	must(t, x.tx.Commit())
}

func (x transaction) Rollback(t *testing.T) {
	t.Helper()
	must(t, x.tx.Rollback())
}

func null(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for " + what)
		}
		time.Sleep(time.Millisecond)
	}
}
