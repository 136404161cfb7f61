//go:build linux

package bench

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// server is a database server, on which a benchmark makes databases of its own. The settings that the benchmarks change
// are changed only on a server that scripts/services.sh runs, and put back.
type server struct {
	name    string // as people write it
	plugin  string
	driver  string
	dsn     string // of any database on it
	db      *sql.DB
	ours    bool // its settings may be changed
	version string
	parent  int // PostgreSQL's first process, where serverTime can see it; else 0
}

// openServer connects to the server whose address the variable has, or returns false.
func openServer(b *testing.B, name, plugin, driver, variable string) (*server, bool) {
	s := &server{name: name, plugin: plugin, driver: driver, dsn: os.Getenv(variable), ours: os.Getenv("CONNECTD_TEST_SERVICES_SH") != ""}
	if s.dsn == "" {
		return nil, false
	}
	s.db = s.open(b, s.dsn)
	s.db.SetMaxIdleConns(-1) // the server may be restarted
	if err := s.db.QueryRowContext(b.Context(), "SELECT version()").Scan(&s.version); err != nil {
		b.Fatal(err)
	}
	return s, true
}

func (s *server) open(b *testing.B, dsn string) *sql.DB {
	db, err := sql.Open(s.driver, dsn)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// withServer makes a benchmark of a function that needs a server. Without one the table says so.
func (r *report) withServer(p programs, s *server, figures, variable string, f func(*testing.B, programs, *server, *report)) func(*testing.B) {
	return func(b *testing.B) {
		if s == nil {
			r.notMeasured(figures, variable+" is not set (make bench starts the servers)")
			return
		}
		f(b, p, s, r)
		b.ReportMetric(0, "ns/op")
	}
}

// tunePostgres gives the server memory and a log as a small production server has them: with 64 MB of buffers and a
// checkpoint each gigabyte the disk would be measured. more are other settings. It returns what puts all back.
func tunePostgres(b *testing.B, s *server, more ...string) (back func()) {
	restart := func() {
		for _, verb := range []string{"stop", "start"} {
			if out, err := exec.Command(os.Getenv("CONNECTD_TEST_SERVICES_SH"), verb, "postgres").CombinedOutput(); err != nil {
				b.Fatalf("services.sh %s postgres: %v\n%s", verb, err, out)
			}
		}
	}
	for _, setting := range append([]string{"shared_buffers = '1GB'", "max_wal_size = '8GB'", "checkpoint_timeout = '15min'"}, more...) {
		s.exec(b, "ALTER SYSTEM SET "+setting)
	}
	restart()
	return func() {
		s.exec(b, `ALTER SYSTEM RESET ALL`)
		restart()
	}
}

// tuneMySQL does the same for MySQL and MariaDB, which need no restart for it.
func tuneMySQL(b *testing.B, s *server) (back func()) {
	settings := []string{"innodb_buffer_pool_size", "innodb_redo_log_capacity"}
	if strings.Contains(s.version, "MariaDB") {
		settings[1] = "innodb_log_file_size"
	}
	before := make([]int64, len(settings))
	for i, name := range settings {
		if err := s.db.QueryRow("SELECT @@GLOBAL." + name).Scan(&before[i]); err != nil {
			b.Fatal(err)
		}
		s.exec(b, fmt.Sprintf("SET GLOBAL %s = %d", name, 1<<30))
	}
	return func() {
		for i, name := range settings {
			s.exec(b, fmt.Sprintf("SET GLOBAL %s = %d", name, before[i]))
		}
	}
}

// exec runs statements on no database of a benchmark's.
func (s *server) exec(b *testing.B, statements ...string) {
	b.Helper()
	for _, each := range statements {
		if _, err := s.db.Exec(each); err != nil {
			b.Fatalf("%s: %v", each, err)
		}
	}
}

// database is one with an outbox.
type database struct {
	*server
	name string
	dsn  string
	db   *sql.DB
}

// newDatabase makes an empty one, or on PostgreSQL a copy of a template, which nobody may be connected to.
func (s *server) newDatabase(b *testing.B, template string) *database {
	d := &database{server: s, name: fmt.Sprintf("connectd_bench_%x", rand.Uint64())}
	create := "CREATE DATABASE " + d.name
	if template != "" {
		create += " TEMPLATE " + template
		if s.has(b, 15) {
			create += " STRATEGY FILE_COPY" // the other one writes all pages to the log, and leaves them in the buffers
		}
	}
	s.exec(b, create)
	d.dsn = s.at(b, d.name)
	d.db = s.open(b, d.dsn)
	b.Cleanup(func() { d.drop(b) })
	return d
}

// has reports whether PostgreSQL's version is at least that.
func (s *server) has(b *testing.B, version int) bool {
	var number int
	if err := s.db.QueryRow("SELECT current_setting('server_version_num')::int").Scan(&number); err != nil {
		b.Fatal(err)
	}
	return number >= version*10_000
}

// at is the DSN of another database.
func (s *server) at(b *testing.B, name string) string {
	if s.plugin == "mysql" {
		return s.dsn[:strings.LastIndex(s.dsn, "/")+1] + name
	}
	u, err := url.Parse(s.dsn)
	if err != nil {
		b.Fatal("the address of PostgreSQL is no URL")
	}
	u.Path = "/" + name
	return u.String()
}

// drop removes the database; it may be called twice.
func (d *database) drop(b *testing.B) {
	_ = d.db.Close()
	statement := "DROP DATABASE IF EXISTS " + d.name
	if d.plugin == "postgres" {
		statement += " WITH (FORCE)"
	}
	d.exec(b, statement)
}

// query reads one row.
func (d *database) query(b *testing.B, statement string, into ...any) {
	b.Helper()
	if err := d.db.QueryRowContext(b.Context(), statement).Scan(into...); err != nil {
		b.Fatalf("%s: %v", statement, err)
	}
}

// run runs statements in the database, and returns how long they took.
func (d *database) run(b *testing.B, statements ...string) time.Duration {
	b.Helper()
	began := time.Now()
	for _, each := range statements {
		if _, err := d.db.ExecContext(b.Context(), each); err != nil {
			b.Fatalf("%s: %v", each, err)
		}
	}
	return time.Since(began)
}

// setup is a daemon's configuration for this database. more are other settings of the source, sections the connector's.
func (d *database) setup(b *testing.B, p programs, more, sink, sections string) setup {
	return newSetupOn(b, p, fmt.Sprintf("{plugin: %s, dsn: %q, table: outbox%s}", d.plugin, d.dsn, more), sink, sections)
}

// The connector's sections, and what init makes of them: rows that are published are deleted, or kept.
const (
	rowsDeleted = "retention: {published: 0s}"
	rowsKept    = ""
)

// once lets a benchmark that takes long be done in the first round only.
func once(b *testing.B, f func()) {
	for first := true; b.Loop(); first = false {
		if first {
			f()
		}
	}
}
