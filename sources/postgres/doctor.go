package postgres

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// doctorPool is how many connections look.
const doctorPool = 2

// thresholds are above which something is worth a warning, or the time for a look is over.
type thresholds struct {
	check       time.Duration // one thing that is looked at
	transaction time.Duration // one that has been open longer
	dead        int64         // rows that are dead and not yet vacuumed
}

var usual = thresholds{check: 5 * time.Second, transaction: time.Minute, dead: 200_000}

// doctor looks at one outbox table.
type doctor struct {
	core.Diagnosis
	thresholds
	cfg Config
	src *Source
	srv *server
}

// Diagnose looks at everything that a daemon relies on, and says what it found. It changes nothing and locks nothing that anybody
// waits for. Each look is bounded, also when ctx is not.
func Diagnose(ctx context.Context, cfg Config) core.Diagnosis { return diagnose(ctx, cfg, usual) }

func diagnose(ctx context.Context, cfg Config, t thresholds) core.Diagnosis {
	d := &doctor{cfg: cfg, thresholds: t}
	if !d.reach(ctx) {
		return d.Diagnosis
	}
	defer func() { _ = d.src.Close() }()
	d.check(ctx, "clock", d.clock)
	d.check(ctx, "durability", d.durability)
	if d.cfg.Notify != NotifyOff {
		d.check(ctx, "notify", d.notify)
	}
	d.check(ctx, "transactions", d.transactions)
	if !d.check(ctx, "table", d.table) || !d.Looked {
		return d.Diagnosis
	}
	d.check(ctx, "rights", d.rights)
	if d.Faulty("rights") {
		return d.Diagnosis // what follows would only say so again
	}
	d.check(ctx, "inserts", d.inserts)
	d.check(ctx, "plan", d.plan)
	if !d.Faulty("plan") { // the same index is read
		d.check(ctx, "numbers", d.numbers)
	}
	if d.cfg.CommitOrder {
		d.check(ctx, "commit order", d.commitOrder)
	}
	d.check(ctx, "dead rows", d.deadRows)
	d.check(ctx, "workers", d.workers)
	return d.Diagnosis
}

// check runs one look. Its error is a problem.
func (d *doctor) check(ctx context.Context, what string, look func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, d.thresholds.check)
	defer cancel()
	err := discreet(look(ctx))
	switch {
	case err == nil:
	case sqlState(err) == insufficientPrivilege:
		d.Fault("rights", err.Error(), "grant the role of the dsn USAGE on the schema, and SELECT, INSERT, UPDATE and DELETE on the outbox table and on the tables connectd_*")
	case errors.Is(err, context.DeadlineExceeded):
		d.Fault(what, fmt.Sprintf("no answer within %v: %v", d.thresholds.check, err), "look in pg_stat_activity and pg_locks for who locks the table, such as an ALTER TABLE, or what else keeps the server busy")
	default:
		d.Fault(what, err.Error(), "look whether the server still runs and into its log, and try again")
	}
	return err == nil
}

// The errors of connecting, by SQLSTATE.
const (
	insufficientPrivilege = "42501"
	invalidPassword       = "28P01"
	invalidAuthorization  = "28000"
	noSuchDatabase        = "3D000"
	tooManyConnections    = "53300"
	undefinedObject       = "42704"
)

// reach connects, and makes the pool with which everything else is looked at.
func (d *doctor) reach(ctx context.Context) bool {
	reaching, cancel := context.WithTimeout(ctx, d.thresholds.check)
	defer cancel()
	srv, conn, err := reach(reaching, d.cfg)
	if err != nil {
		d.Fault("server", "it cannot be used: "+err.Error(), unreachable(err))
		return false
	}
	defer conn.Close(reaching)
	var number int
	var text string
	if err := conn.QueryRow(reaching, `SELECT current_setting('server_version_num')::int, current_setting('server_version')`,
		pgx.QueryExecModeSimpleProtocol).Scan(&number, &text); err != nil {
		d.Fault("server", "ask for its version: "+err.Error(), unreachable(err))
		return false
	}
	if !d.version(number, text) {
		return false
	}
	d.Fine("server", "it can be reached and takes writes")
	if srv.pooled {
		d.Fine("pooler", "a transaction pooler stands in between, which is allowed for: no statement is left prepared, and settings are made in each transaction")
	}
	pool, err := srv.pool(ctx, doctorPool)
	if err != nil {
		d.Fault("server", err.Error(), "correct the dsn")
		return false
	}
	d.srv, d.src = srv, &Source{pooled: srv.pooled, ascii: !srv.anyText, work: pool, keep: pool, deletePublished: d.cfg.DeletePublished}
	return true
}

// unreachable says what to do when the server cannot be used.
func unreachable(err error) string {
	switch sqlState(err) {
	case invalidPassword, invalidAuthorization:
		return "correct the user or the password in the dsn, or let them in by pg_hba.conf; where that asks for TLS, say so in the dsn (sslmode)"
	case insufficientPrivilege:
		return "GRANT CONNECT ON DATABASE to the role of the dsn"
	case noSuchDatabase:
		return "create the database, or correct its name in the dsn"
	case tooManyConnections:
		return "raise max_connections or the CONNECTION LIMIT of the role or the database, or let fewer connections in: a daemon has up to twelve for each connector"
	case undefinedObject:
		return "correct the dsn: what it says beside host, user and database are settings of the session"
	}
	switch {
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return "name the primary in the dsn: this server is a standby, or default_transaction_read_only is set for it, the database or the role"
	case errors.Is(err, errDSN):
		return "correct the dsn"
	case untrusted(err):
		return "let sslrootcert in the dsn name the file of the authority that signed the server's certificate, and host the name the certificate is for"
	case strings.Contains(err.Error(), "server refused TLS connection"): // pgx gives it no type
		return "let the server speak TLS (ssl = on), or choose another sslmode in the dsn"
	default:
		return "look whether the server runs, whether host and port in the dsn are its, and whether a firewall is in between"
	}
}

// untrusted says that the server's certificate was refused. With sslmode=verify-ca the client looks at it, and not crypto/tls.
func untrusted(err error) bool {
	var refused *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &refused) || errors.As(err, &authority) || errors.As(err, &invalid)
}

func (d *doctor) version(number int, text string) bool {
	if number/10000 < oldest {
		d.Fault("version", "the server is PostgreSQL "+text, fmt.Sprintf("upgrade it: PostgreSQL %d is the oldest that will do", oldest))
		return false
	}
	d.Fine("version", "PostgreSQL %s", text)
	return true
}

// clock compares the clocks, and looks at the zone in which times come.
func (d *doctor) clock(ctx context.Context) error {
	var micros int64
	var zone string
	before := time.Now()
	if err := d.src.work.QueryRow(ctx, `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, current_setting('TimeZone')`).Scan(&micros, &zone); err != nil {
		return err
	}
	// Connecting takes its time before the clock is read, and is part of what the difference may be.
	d.Clock(time.UnixMicro(micros), before, time.Now())
	if zone != "UTC" {
		d.Fault("zone", "the session's time zone is "+zone+", though it was begun with UTC", "look for a pooler that changes the sessions' settings, or for ALTER ROLE ... SET timezone")
		return nil
	}
	d.Fine("zone", "the session is in UTC")
	return nil
}

// durability: a commit that a crash undoes may be an announcement, and its rows are sent again without the mark.
func (d *doctor) durability(ctx context.Context) error {
	var fsync string
	if err := d.src.work.QueryRow(ctx, `SELECT current_setting('fsync')`).Scan(&fsync); err != nil {
		return err
	}
	if fsync == "off" {
		d.Warn("durability", "fsync is off: what was committed may be lost when the machine stops", "set fsync = on, unless this is a server for tests")
		return nil
	}
	d.Fine("durability", "commits outlive a crash")
	return nil
}

// notify sends itself a notification, on a channel where nobody else listens.
func (d *doctor) notify(ctx context.Context) error {
	l := &listener{channel: "connectd.doctor." + rand.Text(), log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1)}
	l.send = func(ctx context.Context, payload string) error {
		_, err := d.src.keep.Exec(ctx, "SELECT pg_notify($1::text, $2::text)", l.channel, payload)
		return err
	}
	conn, err := d.srv.dial(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN "+quote(l.channel)); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	err = l.probe(ctx, conn)
	switch {
	case errors.Is(err, errSilent) && d.srv.pooled:
		d.Warn("notify", "NOTIFY does not come through the transaction pooler; new rows are found by polling", "let the dsn lead to the server itself, or leave source.notify out")
	case errors.Is(err, errSilent):
		d.Warn("notify", fmt.Sprintf("a NOTIFY did not come back within %v; new rows are found by polling", probeLimit), "look for a proxy in between, or leave source.notify out")
	case err != nil:
		return err
	default:
		d.Fine("notify", "a NOTIFY comes through")
	}
	return nil
}

// table looks at the table and all that init makes.
func (d *doctor) table(ctx context.Context) error {
	s, err := inspect(ctx, d.src.work, d.cfg)
	switch {
	case err != nil && sqlState(err) == "" && ctx.Err() == nil:
		about, flaw := layout.MisfitOf(err)
		d.Fault(about, err.Error(), remedy(flaw))
		return nil
	case err != nil:
		return err
	case !s.exists:
		d.Fault("table", "there is no table "+s.table.String(), "run `connectd init`, which makes it, or correct source.table")
		return nil
	}
	d.Fine("table", "%s is there, with the columns that are read", s.table)
	d.Fine("id", "column %s is unique", s.cols.ID)
	d.src.s, d.src.text = s, s.texts()
	if layout.Missing(&d.Diagnosis, s.missing(), "") {
		return nil
	}
	if err := s.samePartitions(); err != nil {
		d.Fault("initialised", err.Error(), "map columns.id and columns.key as they were when init ran")
		return nil
	}
	d.Looked = true
	d.Fine("index", "%s is there and valid", s.objectName("pending"))
	layout.Initialised(&d.Diagnosis, s.version, schemaVersion, s.partitions)
	return d.trigger(ctx)
}

// remedy is what to do about such a table, where the error does not say so itself.
func remedy(flaw layout.Flaw) string {
	switch flaw {
	case layout.NotUnique:
		return "give the column one (CREATE UNIQUE INDEX CONCURRENTLY, then ALTER TABLE ... ADD UNIQUE USING INDEX), or map the name in source.columns to a column that has one"
	case layout.TooNew:
		return "upgrade connectd here"
	case layout.Mismapped:
		return "correct source.columns or source.table"
	default:
		return "name another table in source.table, or change this one"
	}
}

// trigger looks whether somebody has disabled it.
func (d *doctor) trigger(ctx context.Context) error {
	s := d.src.s
	if !s.trigger {
		return nil
	}
	var enabled string
	err := d.src.work.QueryRow(ctx, `SELECT tgenabled::text FROM pg_trigger WHERE tgrelid = to_regclass($1::text) AND tgname = $2::text`,
		s.table.quoted(), s.objectName("inserted")).Scan(&enabled)
	if err == nil && enabled != "O" && enabled != "A" {
		d.Warn("notify", "the trigger "+s.objectName("inserted")+" is disabled; new rows are found by polling",
			"ALTER TABLE "+s.table.quoted()+" ENABLE TRIGGER "+quote(s.objectName("inserted")))
	}
	return err
}

// plan looks at the plan of the very fetch that a daemon runs.
func (d *doctor) plan(ctx context.Context) error {
	plan, err := d.src.FetchPlan(ctx, 0)
	if err != nil {
		return err
	}
	if err := d.src.CheckPlan(plan); err != nil {
		d.Fault("plan", fmt.Sprintf("%v: %s", err, strings.Join(strings.Fields(plan), " ")),
			"compare the index with what `connectd init --print` makes of an empty database, drop it if it is another and run `connectd init`; look whether enable_indexscan is off, or an extension changes plans")
		return nil
	}
	d.Fine("plan", "the fetch is a scan of index %s, without a sort", d.src.s.objectName("pending"))
	return nil
}

// commitOrder looks at what the order rests on.
func (d *doctor) commitOrder(ctx context.Context) error {
	var err error
	if d.src.order, err = newBarrier(ctx, d.src.work, d.src.s); err != nil {
		if sqlState(err) != "" || ctx.Err() != nil {
			return err
		}
		d.Fault("commit order", err.Error(), "let a sequence that hands out one number at a time belong to the column, or set delivery.ordering to key")
		return nil
	}
	var given int64
	if err := d.src.work.QueryRow(ctx, `SELECT last_value FROM `+d.src.order.sequence).Scan(&given); err != nil {
		return err
	}
	d.Fine("commit order", "sequence %s hands out one number at a time", d.src.order.sequence)
	who, age, err := d.src.order.holder(ctx, d.src.work, nil)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err == nil && age > d.transaction:
		d.Warn("commit order", fmt.Sprintf("a transaction that may have inserted rows is open since %v, and every later row waits for it: %s", age.Round(time.Second), who),
			"end it, and set transaction or idle_in_transaction_session_timeout for its role")
	}
	return err
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
	return d.src.work.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM `+d.src.s.beside("receipt")+`)`).Scan(&d.Receipts)
}
