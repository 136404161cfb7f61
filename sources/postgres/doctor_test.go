package postgres_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sourcetest"
)

// Other tests' transactions may be open, and a test server need not be durable.
func wantSound(t *testing.T, d core.Diagnosis) {
	t.Helper()
	sourcetest.WantSound(t, d, "transactions", "durability")
}

// soundTable is a table that init has made.
func soundTable(t *testing.T) postgres.Config {
	t.Helper()
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{})
	return cfg
}

// A sound table is found sound whatever its shape and the way to it, and nothing in it is changed.
func TestDoctorOfASoundTable(t *testing.T) {
	for mode, dsn := range modes {
		for shape, fill := range shapes {
			if shape != "empty" && (mode != "prepared" && mode != "pooler" || !strings.HasPrefix(shape, "analysed")) {
				continue // the plans have a test of their own
			}
			t.Run(mode+", "+shape, func(t *testing.T) {
				cfg := soundTable(t)
				fill(t, cfg)
				cfg.DSN = dsn(t)
				schema, _, _ := strings.Cut(cfg.Table, ".")
				state := func() string {
					var all []string
					for _, table := range []string{"outbox", "connectd_outbox", "connectd_lease", "connectd_worker", "connectd_inflight", "connectd_attempt", "connectd_revision", "connectd_ledger", "connectd_receipt", "connectd_cleaned"} {
						all = append(all, ask[string](t, `SELECT count(*) || ' ' || coalesce(sum(xmin::text::bigint), 0) FROM `+schema+"."+table))
					}
					return strings.Join(all, ", ") + ask[string](t, `SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relnamespace = to_regnamespace($1)`, schema)
				}
				before := state()
				wantSound(t, postgres.Diagnose(t.Context(), cfg))
				if after := state(); after != before {
					t.Errorf("before: %s\nafter:  %s", before, after)
				}
			})
		}
	}
}

func TestDoctorOfAnAdoptedTable(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox", DeletePublished: true, CommitOrder: true, Notify: postgres.NotifyTrigger}
	in(t, cfg, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregateid varchar(100), payload bytea)`)
	sourcetest.WantFinding(t, postgres.Diagnose(t.Context(), cfg), core.Problem, "initialised", "column state", "connectd init")
	initialise(t, cfg, postgres.InitOptions{})
	d := postgres.Diagnose(t.Context(), cfg)
	wantSound(t, d)
	sourcetest.WantFinding(t, d, core.Fine, "notify")
	sourcetest.WantFinding(t, d, core.Fine, "commit order")
	if len(d.Leases) != postgres.DefaultPartitions || d.Receipts {
		t.Errorf("%d leases, receipts %v", len(d.Leases), d.Receipts)
	}
	in(t, cfg, `INSERT INTO connectd_receipt (command_id) VALUES ('a')`, `ALTER TABLE outbox DISABLE TRIGGER connectd_outbox_inserted`, `ALTER SEQUENCE connectd_outbox_seq CACHE 10`)
	d = postgres.Diagnose(t.Context(), cfg)
	if !d.Receipts {
		t.Error("the receipt was not seen")
	}
	sourcetest.WantFinding(t, d, core.Warning, "notify", "is disabled", "ENABLE TRIGGER")
	sourcetest.WantFinding(t, d, core.Problem, "commit order", "10 numbers at a time", "CACHE 1", "delivery.ordering")
}

// Not everybody leaves the sequence to PUBLIC.
func TestDoctorOfRolesThatCannotInsert(t *testing.T) {
	role := fmt.Sprintf("Shop_%x", rand.Uint64())
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	in(t, cfg, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregateid varchar(100), payload bytea)`, `CREATE ROLE "`+role+`"`)
	t.Cleanup(func() { execute(t, `DROP OWNED BY "`+role+`"; DROP ROLE "`+role+`"`) })
	initialise(t, cfg, postgres.InitOptions{})
	sound := func() { t.Helper(); wantSound(t, postgres.Diagnose(t.Context(), cfg)) }
	in(t, cfg, `GRANT INSERT (id, payload) ON outbox TO "`+role+`"`)
	sound()
	in(t, cfg, `REVOKE USAGE ON SEQUENCE connectd_outbox_seq FROM PUBLIC`)
	do := sourcetest.WantFinding(t, postgres.Diagnose(t.Context(), cfg), core.Warning, "inserts", role, "connectd_outbox_seq").Do
	in(t, cfg, do)
	sound()
	in(t, cfg, `REVOKE ALL ON SEQUENCE connectd_outbox_seq FROM "`+role+`"`, `REVOKE INSERT (id, payload) ON outbox FROM "`+role+`"`)
	sound()
}

// What is wrong with the table is named, and what to do about it.
func TestDoctorOfTheTable(t *testing.T) {
	index := `CREATE INDEX connectd_outbox_pending ON outbox `
	for name, c := range map[string]struct {
		breaks string
		level  core.Level
		what   string
		words  []string
	}{
		"no index":         {`DROP INDEX connectd_outbox_pending`, core.Problem, "index", []string{"no index connectd_outbox_pending", "connectd init"}},
		"an invalid index": {`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'connectd_outbox_pending'::regclass`, core.Problem, "index", []string{"no valid index", "connectd init"}},
		"another index":    {`DROP INDEX connectd_outbox_pending; ` + index + `(part) WHERE state = 'pending'`, core.Problem, "plan", []string{"sorts", "connectd_outbox_pending"}},
		"a useless index":  {`DROP INDEX connectd_outbox_pending; ` + index + `(payload)`, core.Problem, "plan", []string{"reads the whole table", "connectd init"}},
		"no column":        {`ALTER TABLE outbox DROP COLUMN last_error`, core.Problem, "initialised", []string{"last_error", "connectd init"}},
		"no payload":       {`ALTER TABLE outbox DROP COLUMN payload`, core.Problem, "table", []string{"no column payload", "columns.payload", "correct source.columns"}},
		"no unique id":     {`ALTER TABLE outbox DROP CONSTRAINT outbox_id_key`, core.Problem, "id", []string{"no unique constraint", "ADD UNIQUE"}},
		"no numbers":       {`DROP TABLE outbox; CREATE TABLE outbox (id text PRIMARY KEY, aggregateid text, payload text, seq bigint NOT NULL UNIQUE)`, core.Problem, "order", []string{"map columns.order", "correct source.columns"}},
		"no lease table":   {`DROP TABLE connectd_lease`, core.Problem, "initialised", []string{"connectd_lease"}},
		"no registration":  {`DELETE FROM connectd_outbox`, core.Problem, "initialised", []string{"connectd init"}},
		"the next version": {`UPDATE connectd_outbox SET version = 2`, core.Warning, "initialised", []string{"upgrade connectd"}},
		"a far version":    {`UPDATE connectd_outbox SET version = 3`, core.Problem, "table", []string{"upgrade connectd"}},
		"no table":         {`DROP TABLE outbox`, core.Problem, "table", []string{"there is no table", "connectd init"}},
		"a view":           {`DROP TABLE outbox; CREATE VIEW outbox AS SELECT 1 AS id`, core.Problem, "table", []string{"no ordinary table"}},
		"another mapping":  {`UPDATE connectd_outbox SET partition_by = 'x'`, core.Problem, "initialised", []string{"map columns.id"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := soundTable(t)
			in(t, cfg, insertMany(1000), `ANALYZE outbox`, c.breaks)
			d := postgres.Diagnose(t.Context(), cfg)
			sourcetest.WantFinding(t, d, c.level, c.what, c.words...)
			sourcetest.WantFinding(t, d, core.Fine, "server")
		})
	}
}

// A server that cannot be used is told from one that is not there, and no secret is shown.
func TestDoctorOfTheServer(t *testing.T) {
	good := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	at := func(change func(u *url.URL)) string {
		u, err := url.Parse(good.DSN)
		if err != nil {
			t.Fatal(err)
		}
		change(u)
		return u.String()
	}
	for name, c := range map[string]struct{ dsn, words string }{
		"a wrong password": {at(func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "hunter2") }), "password in the dsn"},
		"no database":      {at(func(u *url.URL) { u.Path = "/nothing_there" }), "create the database"},
		"nobody there":     {at(func(u *url.URL) { u.Host = "127.0.0.1:1" }), "whether the server runs"},
		"read-only":        {with(t, good.DSN, "default_transaction_read_only", "on"), "name the primary"},
		"no dsn":           {"postgres://a:hunter2@[/", "correct the dsn"},
		"no TLS":           {with(t, good.DSN, "sslmode", "require"), "choose another sslmode"},
		"no certificate":   {with(t, with(t, good.DSN, "sslmode", "verify-full"), "sslrootcert", "/nowhere/ca.pem"), "correct the dsn"},
		"another setting":  {with(t, good.DSN, "sslmood", "off"), "settings of the session"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			cfg.DSN = c.dsn
			d := postgres.Diagnose(t.Context(), cfg)
			sourcetest.WantFinding(t, d, core.Problem, "server", c.words)
			if strings.Contains(fmt.Sprint(d), "hunter2") {
				t.Errorf("the password is shown: %+v", d)
			}
		})
	}
	for code, words := range map[string]string{"42501": "GRANT CONNECT", "53300": "CONNECTION LIMIT"} {
		if got := postgres.Unreachable(&pgconn.PgError{Code: code}); !strings.Contains(got, words) {
			t.Errorf("%s: %s", code, got)
		}
	}
	for _, refused := range []error{&tls.CertificateVerificationError{Err: errors.New("x509: not this one")}, x509.UnknownAuthorityError{}, x509.CertificateInvalidError{}} {
		if got := postgres.Unreachable(fmt.Errorf("connect: %w", refused)); !strings.Contains(got, "sslrootcert") {
			t.Errorf("%T: %s", refused, got)
		}
	}
	old := postgres.JudgeVersion(120022, "12.22")
	sourcetest.WantFinding(t, old, core.Problem, "version", "12.22", "13")
	sourcetest.WantFinding(t, postgres.JudgeVersion(130001, "13.1"), core.Fine, "version")
}

// The rights that are missing are named, by GRANTs that suffice.
func TestDoctorOfTheRights(t *testing.T) {
	for _, deletes := range []bool{false, true} {
		t.Run(fmt.Sprint("delete on publish ", deletes), func(t *testing.T) {
			cfg := soundTable(t)
			cfg.DeletePublished = deletes
			schema, _, _ := strings.Cut(cfg.Table, ".")
			role := fmt.Sprintf("role%x", rand.Uint64())
			execute(t, `CREATE ROLE `+role+` LOGIN PASSWORD 'hunter2'`)
			t.Cleanup(func() { execute(t, `DROP OWNED BY `+role, `DROP ROLE `+role) })
			u, err := url.Parse(cfg.DSN)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword(role, "hunter2")
			cfg.DSN = u.String()
			sourcetest.WantFinding(t, postgres.Diagnose(t.Context(), cfg), core.Problem, "rights", "USAGE on the schema")
			in(t, asOwner(t, cfg), `GRANT USAGE ON SCHEMA `+schema+` TO `+role)
			sourcetest.WantFinding(t, postgres.Diagnose(t.Context(), cfg), core.Problem, "rights", "connectd_outbox")
			in(t, asOwner(t, cfg), `GRANT SELECT ON connectd_outbox, connectd_lease TO `+role)
			f := sourcetest.WantFinding(t, postgres.Diagnose(t.Context(), cfg), core.Problem, "rights", "UPDATE", "connectd_inflight", "INSERT")
			in(t, asOwner(t, cfg), strings.Split(f.Do, "; ")...)
			d := postgres.Diagnose(t.Context(), cfg)
			if deletes {
				wantSound(t, d)
			} else {
				f := sourcetest.WantFinding(t, d, core.Warning, "rights", "never cleaned up")
				in(t, asOwner(t, cfg), f.Do)
				wantSound(t, postgres.Diagnose(t.Context(), cfg))
			}
			useIt(t, cfg)
			in(t, asOwner(t, cfg), `ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)
			sourcetest.WantFinding(t, postgres.Diagnose(t.Context(), cfg), core.Warning, "rights", "row security", "BYPASSRLS")
		})
	}
}

// asOwner is cfg as the owner of the table has it.
func asOwner(t *testing.T, cfg postgres.Config) postgres.Config {
	cfg.DSN = services.Postgres(t)
	return cfg
}

// useIt does with a source what a daemon does, under the rights that doctor found sufficient.
func useIt(t *testing.T, cfg postgres.Config) {
	t.Helper()
	in(t, asOwner(t, cfg), `INSERT INTO outbox (id, aggregateid, payload) VALUES ('a', 'k', 'x'), ('b', 'k', 'x')`)
	src := open(t, cfg)
	ctx := t.Context()
	_, err := src.Heartbeat(ctx, "me", nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := src.Acquire(ctx, "me", 100, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range taken {
		page, err := sourcetest.Page(ctx, src, core.FetchRequest{Part: a.Lease.Part, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range page.Rows {
			seq := r.Record.Seq
			step := func(c core.Change) {
				if c.Lease = a.Lease; err == nil {
					err = src.Step(ctx, "me", []core.Change{c})
				}
			}
			step(core.Change{Announce: []core.Announcement{{Batch: int64(i + 1), Seqs: []int64{seq}}}})
			settle := core.Settlement{Seq: seq, State: core.Published}
			if i == 1 {
				settle = core.Settlement{Seq: seq, State: core.Dead, Failure: &core.Failure{Code: "x"}}
			}
			step(core.Change{Settle: []core.Settlement{settle}, Finished: []core.Finished{{Batch: int64(i + 1), Keep: i == 1}}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := src.Retry(ctx, core.Act{ID: "b", By: "me"}); err != nil {
		t.Fatal(err)
	}
	if err := src.Leave(ctx, "me"); err != nil {
		t.Fatal(err)
	}
}

func TestDoctorOfWhatHoldsBackRows(t *testing.T) {
	cfg := soundTable(t)
	cfg.CommitOrder = true
	look := func() core.Diagnosis { return postgres.DiagnoseWith(t.Context(), cfg, 0, time.Microsecond, 0) }
	begin(t, cfg.DSN, `SELECT pg_current_xact_id()`) // elsewhere
	sourcetest.WantFinding(t, look(), core.Fine, "commit order", "one number at a time")
	if said := fmt.Sprint(look().Findings); strings.Contains(said, "every later row waits") {
		t.Error(said)
	}
	begin(t, with(t, cfg.DSN, "application_name", "culprit"), `INSERT INTO `+quoted(cfg)+` (id, payload) VALUES ('a', 'x')`)
	sourcetest.WantFinding(t, look(), core.Warning, "commit order", "every later row waits", "process ", "application culprit", "since 20", "end it")
}

// A LISTEN through the pooler succeeds, and nothing ever comes.
func TestDoctorOfNotifyThroughAPooler(t *testing.T) {
	cfg := soundTable(t)
	cfg.DSN, cfg.Notify = services.PgBouncer(t), postgres.NotifyProducer
	d := postgres.Diagnose(t.Context(), cfg)
	sourcetest.WantFinding(t, d, core.Warning, "notify", "pooler", "polling", "leave source.notify out")
	sourcetest.WantFinding(t, d, core.Fine, "pooler")
	sourcetest.WantFinding(t, d, core.Fine, "plan")
}

func TestDoctorOfTransactionsAndDeadRows(t *testing.T) {
	cfg := soundTable(t)
	schema, _, _ := strings.Cut(cfg.Table, ".")
	// A session counts what it did when it ends; else it takes its time.
	executeAt(t, cfg.DSN, `SET search_path = `+schema, `ALTER TABLE outbox SET (autovacuum_enabled = off)`, insertMany(5000), `DELETE FROM outbox`)
	look := func() core.Diagnosis { return postgres.DiagnoseWith(t.Context(), cfg, 0, time.Microsecond, 1000) }
	deadline := time.Now().Add(20 * time.Second)
	for d := look(); !strings.Contains(fmt.Sprint(d), "does not keep up"); d = look() { // the session may be ending still
		if time.Now().After(deadline) {
			t.Fatalf("%+v", d.Findings)
		}
	}
	ctx := context.Background()
	pool := application(t, with(t, services.Postgres(t), "application_name", "culprit"))
	for statement, words := range map[string]string{
		`SELECT pg_current_xact_id()`: "has written is open",
		`SELECT 1`:                    "a snapshot is held",
	} {
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, statement} {
			if _, err := tx.Exec(ctx, s); err != nil {
				t.Fatal(err)
			}
		}
		said := fmt.Sprint(look().Findings)
		if i := strings.Index(said, "culprit"); i < 0 || !strings.Contains(said, words) {
			t.Errorf("%s: %s", statement, said)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// Who locks the table keeps doctor for a bounded time.
func TestDoctorOfALockedTable(t *testing.T) {
	cfg := soundTable(t)
	tx, err := application(t, cfg.DSN).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `LOCK TABLE `+cfg.Table+` IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	sourcetest.WantFinding(t, postgres.DiagnoseWith(t.Context(), cfg, time.Second, 0, 0), core.Problem, "table", "no answer within 1s", "pg_locks")
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}
