package mysql

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

const (
	checkLimit = 5 * time.Second // for one thing that is looked at
	doctorPool = 2               // connections that look
)

// longTransaction is how long one may be open before it is worth a warning.
const longTransaction = time.Minute

// doctor looks at one outbox table.
type doctor struct {
	core.Diagnosis
	cfg  Config
	long time.Duration
	db   *sql.DB
	src  *Source
}

// Diagnose looks at everything that a daemon relies on, and says what it found. It changes nothing and locks nothing that anybody
// waits for. Each look is bounded, also when ctx is not.
func Diagnose(ctx context.Context, cfg Config) core.Diagnosis {
	return diagnose(ctx, cfg, longTransaction)
}

func diagnose(ctx context.Context, cfg Config, long time.Duration) core.Diagnosis {
	d := &doctor{cfg: cfg, long: long}
	if !d.reach(ctx) {
		return d.Diagnosis
	}
	defer d.db.Close()
	d.check(ctx, "clock", d.clock)
	d.check(ctx, "durability", d.durability)
	d.check(ctx, "transactions", d.transactions)
	if !d.check(ctx, "table", d.table) || !d.Looked {
		return d.Diagnosis
	}
	d.check(ctx, "rights", d.rights)
	if d.Faulty("rights") {
		return d.Diagnosis // what follows would only say so again
	}
	d.check(ctx, "plan", d.plan)
	if !d.Faulty("plan") { // the same index is read
		d.check(ctx, "numbers", d.numbers)
	}
	d.check(ctx, "workers", d.workers)
	return d.Diagnosis
}

// check runs one look. Its error is a problem.
func (d *doctor) check(ctx context.Context, what string, look func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	err := discreet(look(ctx))
	switch {
	case err == nil:
	case isDenied(err):
		d.Fault("rights", err.Error(), "grant the user of the dsn SELECT, INSERT, UPDATE and DELETE in the database, or at least on the outbox table and on the tables connectd_*")
	case errors.Is(err, context.DeadlineExceeded):
		d.Fault(what, fmt.Sprintf("no answer within %v: %v", checkLimit, err), "look in SHOW PROCESSLIST for who locks the table, such as an ALTER TABLE, or what else keeps the server busy")
	default:
		d.Fault(what, err.Error(), "look whether the server still runs and into its log, and try again")
	}
	return err == nil
}

// The errors that tell why a server cannot be used.
const (
	tooManyConnections = 1040
	databaseDenied     = 1044
	userDenied         = 1045
	noSuchDatabase     = 1049
	hostBlocked        = 1129
	hostDenied         = 1130
	tableDenied        = 1142
	columnDenied       = 1143
	unknownVariable    = 1193
	userConnections    = 1203
	userResources      = 1226
	wrongValue         = 1231
	wrongType          = 1232
	passwordExpired    = 1820 // MariaDB, and in a session that may do nothing else
	passwordExpired2   = 1862
	accountLocked      = 3118
	accountLocked2     = 4151 // MariaDB
	needsTLS           = 3159
)

func isDenied(err error) bool {
	switch number(err) {
	case databaseDenied, tableDenied, columnDenied:
		return true
	default:
		return false
	}
}

// reach connects, with a pool through which everything else is looked at.
func (d *doctor) reach(ctx context.Context) bool {
	from, err := newConnector(d.cfg)
	if err != nil {
		d.Fault("server", err.Error(), "correct the dsn")
		return false
	}
	if d.cfg.TLS != nil && d.cfg.TLS.InsecureSkipVerify {
		d.Warn("tls", "any certificate of the server's is accepted, so anybody on the way can read and change everything", "let source.tls.ca_file name the authority's certificate instead of insecure_skip_verify")
	}
	d.db = from.pool(doctorPool)
	d.src = &Source{from: from, work: d.db, keep: d.db, horizon: newHorizon(d.cfg.MaxTransaction), deletePublished: d.cfg.DeletePublished}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	var version string
	if err := d.db.QueryRowContext(ctx, `SELECT version()`).Scan(&version); err != nil {
		d.Fault("server", "it cannot be used: "+err.Error(), unreachable(err))
		d.db.Close()
		return false
	}
	if !d.version(ctx, version) {
		d.db.Close()
		return false
	}
	d.Fine("server", "it can be reached and takes writes")
	return true
}

// version looks at the server's version, and at the rest without which none can be used.
func (d *doctor) version(ctx context.Context, version string) bool {
	if err := checkVersion(version); err != nil {
		d.Fault("version", err.Error(), "use MySQL 8.0.13 or later, or MariaDB 10.6 or later")
		return false
	}
	name := "MySQL "
	if strings.Contains(version, "MariaDB") {
		name = ""
	}
	d.Fine("version", "%s%s", name, version)
	if err := checkServer(ctx, d.db); err != nil {
		d.Fault("binary log", err.Error(), "set binlog_format to ROW or MIXED")
		return false
	}
	return true
}

// unreachable says what to do when the server cannot be used.
func unreachable(err error) string {
	switch number(err) {
	case userDenied:
		return "correct the user or the password in the dsn, or let that user in from this machine; where the server asks for TLS, say so (source.tls: {})"
	case databaseDenied:
		return "grant the user rights in the database, or correct its name in the dsn"
	case noSuchDatabase:
		return "create the database, or correct its name in the dsn"
	case tooManyConnections, userConnections, userResources:
		return "raise max_connections or the user's own limit (ALTER USER ... WITH), or let fewer connections in: a daemon has up to ten for each connector"
	case hostDenied:
		return "let the user in from this machine (CREATE USER ... @ its address)"
	case hostBlocked:
		return "too many connections from this machine failed: look why, and let it in again (TRUNCATE performance_schema.host_cache, FLUSH HOSTS on MariaDB)"
	case accountLocked, accountLocked2:
		return "ALTER USER ... ACCOUNT UNLOCK"
	case passwordExpired, passwordExpired2:
		return "give the user a new password (ALTER USER), and the dsn"
	case unknownVariable, wrongValue, wrongType:
		return "correct the options in the dsn: those that the driver does not know are set as variables of the session"
	case needsTLS:
		return "say that TLS is to be used (source.tls: {}, or tls=true in the dsn)"
	}
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errReadOnly):
		return "name the primary in the dsn"
	case errors.As(err, &untrusted):
		return "name in the dsn the host that the server's certificate is for, and let source.tls.ca_file name the certificate of the authority that signed it, unless this machine trusts it"
	case errors.Is(err, driver.ErrNoTLS):
		return "give the server a certificate (ssl_cert, ssl_key), or leave tls out of the dsn and of source"
	default:
		return "look whether the server runs, whether host and port in the dsn are its, and whether a firewall is in between"
	}
}

// clock compares the clocks, and looks at the zone in which times come.
func (d *doctor) clock(ctx context.Context) error {
	var now instant
	var zone string
	before := time.Now()
	if err := d.db.QueryRowContext(ctx, `SELECT UTC_TIMESTAMP(6), @@session.time_zone`).Scan(&now, &zone); err != nil {
		return err
	}
	d.Clock(now.t, before, time.Now())
	if zone != "+00:00" {
		d.Fault("zone", "the session's time zone is "+zone+", though it was set to +00:00", "look for a proxy that shares sessions and their settings between its clients")
		return nil
	}
	d.Fine("zone", "the session is in UTC")
	return nil
}

// durability: a commit that a crash undoes may be an announcement, and its rows are sent again without the mark.
func (d *doctor) durability(ctx context.Context) error {
	var flush int
	if err := d.db.QueryRowContext(ctx, `SELECT @@innodb_flush_log_at_trx_commit`).Scan(&flush); err != nil {
		return err
	}
	if flush != 1 {
		d.Warn("durability", fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: the last second's commits may be lost when the machine stops", flush), "set it to 1, unless this is a server for tests")
		return nil
	}
	d.Fine("durability", "commits outlive a crash")
	return nil
}

// longOnes are transactions that have been open for longer than a number of seconds. Their beginning comes in the zone of
// the server's system.
const longOnes = `SELECT id, modified, seconds FROM (SELECT trx_mysql_thread_id id, trx_rows_modified > 0 modified,
	TIMESTAMPDIFF(SECOND, CONVERT_TZ(trx_started, 'SYSTEM', '+00:00'), UTC_TIMESTAMP()) seconds FROM information_schema.innodb_trx
	WHERE trx_mysql_thread_id <> CONNECTION_ID()) t WHERE seconds >= ? ORDER BY seconds DESC LIMIT 10`

// transactions looks for those that have been open for long, if the user may see them.
func (d *doctor) transactions(ctx context.Context) error {
	found := false
	err := collect(ctx, d.db, func(rows *sql.Rows) error {
		var id, seconds int64
		var modified bool
		if err := rows.Scan(&id, &modified, &seconds); err != nil {
			return err
		}
		found = true
		age := time.Duration(seconds) * time.Second
		if modified {
			d.Warn("transactions", fmt.Sprintf("a transaction that has written is open since %v, of connection %d. Rows that it inserts late are found, but fetches must go on looking for them", age, id),
				fmt.Sprintf("end it (SHOW PROCESSLIST tells whose it is, KILL %d ends it)", id))
			return nil
		}
		d.Warn("transactions", fmt.Sprintf("a transaction is open since %v, of connection %d. If it holds a snapshot, nothing of what is published meanwhile can be purged", age, id),
			fmt.Sprintf("end it (SHOW PROCESSLIST tells whose it is, KILL %d ends it)", id))
		return nil
	}, longOnes, int64(d.long/time.Second))
	switch {
	case number(err) == accessDenied:
		d.Warn("transactions", fmt.Sprintf("the user may not see running transactions. One that inserts rows and lasts longer than source.max_transaction (%v) may have them sent late, after later rows of their key",
			d.src.horizon.maxTransaction), "GRANT PROCESS ON *.* to the user, or set source.max_transaction to what no transaction outlasts")
		return nil
	case err != nil:
		return err
	case !found:
		d.Fine("transactions", "none is open for longer than %v", d.long)
	}
	return nil
}

// table looks at the table and all that init makes.
func (d *doctor) table(ctx context.Context) error {
	s, err := inspect(ctx, d.db, d.cfg)
	switch {
	case err != nil && number(err) == 0 && ctx.Err() == nil:
		about, flaw := layout.MisfitOf(err)
		d.Fault(about, err.Error(), remedy(flaw))
		return nil
	case err != nil:
		return err
	case !s.exists:
		d.Fault("table", "there is no table "+s.table.String(), "run `connectd init`, which makes it, or correct source.table; a table on which the user has no rights does not show either")
		return nil
	}
	d.Fine("table", "%s is there, with the columns that are read", s.table)
	d.Fine("id", "column %s is unique", s.cols.ID)
	if layout.Missing(&d.Diagnosis, s.missing(), "; a table on which the user has no rights does not show either") {
		return nil
	}
	if err := s.samePartitions(); err != nil {
		d.Fault("initialised", err.Error(), "map columns.id and columns.key as they were when init ran")
		return nil
	}
	d.Looked = true
	d.src.s, d.src.text = s, s.texts()
	d.Fine("index", "%s is there", pendingIndex)
	layout.Initialised(&d.Diagnosis, s.version, schemaVersion, s.partitions)
	return nil
}

// remedy is what to do about such a table, where the error does not say so itself.
func remedy(flaw layout.Flaw) string {
	switch flaw {
	case layout.NotUnique:
		return "give the column one (ALTER TABLE ... ADD UNIQUE), or map the name in source.columns to a column that has one"
	case layout.TooNew:
		return "upgrade connectd here"
	case layout.Mismapped:
		return "correct source.columns or source.table"
	default:
		return "name another table in source.table, or change this one"
	}
}

// plan looks at the plan of the very fetch that a daemon runs.
func (d *doctor) plan(ctx context.Context) error {
	const mend = "compare the index with what `connectd init --print` makes of an empty database, drop it if it is another and run `connectd init`; look whether it is invisible or ignored"
	plan, err := d.src.Explain(ctx)
	switch {
	case number(err) != 0 && !isDenied(err):
		d.Fault("plan", err.Error(), mend)
	case err != nil:
		return err
	case !strings.Contains(plan, " by "+pendingIndex+";"):
		d.Fault("plan", "the fetch does not use the index "+pendingIndex+": "+plan, mend)
	case strings.Contains(plan, "filesort"), strings.Contains(plan, "temporary"):
		d.Fault("plan", "the fetch sorts: "+plan, mend)
	default:
		d.Fine("plan", "the fetch is a scan of index %s, without a sort", pendingIndex)
	}
	return nil
}

// numbers looks for pending rows that are never read.
func (d *doctor) numbers(ctx context.Context) error {
	first, err := d.src.List(ctx, layout.EveryPending())
	if err == nil {
		layout.Numbers(&d.Diagnosis, d.src.s.cols.Order, first)
	}
	return err
}

// workers reads what the daemons have written.
func (d *doctor) workers(ctx context.Context) (err error) {
	if d.Diagnosis.Workers, err = d.src.Workers(ctx); err != nil {
		return err
	}
	if d.Leases, err = d.src.Leases(ctx); err != nil {
		return err
	}
	return d.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM `+d.src.s.own("receipt")+`)`).Scan(&d.Receipts)
}
