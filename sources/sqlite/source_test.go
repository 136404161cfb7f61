package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

// A database that is locked for longer than the busy timeout: an ordinary error, and no more when it is free again.
func TestALockedFileIsAnErrorThatPasses(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox", BusyTimeout: 20 * time.Millisecond}
	initialise(t, cfg)
	src := open(t, cfg)
	conn := immediate(t, application(t, cfg.Path))
	for range 3 {
		if _, err := src.Heartbeat(t.Context(), "one", nil, time.Minute); err == nil || errors.Is(err, core.ErrLeaseNotOwned) || !strings.Contains(err.Error(), "lock") {
			t.Errorf("while the file is locked: %v", err)
		}
	}
	if _, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 1}); err != nil {
		t.Errorf("a fetch waits for nobody: %v", err)
	}
	if err := src.Retry(t.Context(), core.Act{ID: "a", By: "ops"}); !errors.Is(err, core.ErrLocked) {
		t.Errorf("a person's change: %v", err)
	}
	end(t, conn)
	if _, err := src.Heartbeat(t.Context(), "one", nil, time.Minute); err != nil {
		t.Errorf("when it is free again: %v", err)
	}
}

// SQLite keeps any text in a column of integers. One such row must not keep the others from being read.
func TestANumberThatIsNoneStopsNobody(t *testing.T) {
	for _, column := range []string{"attempts", "deliveries", "crashes", "available_at", "failing_since"} {
		t.Run(column, func(t *testing.T) {
			cfg := sqlite.Config{Path: file(t), Table: "outbox"}
			initialise(t, cfg)
			execute(t, cfg.Path, `INSERT INTO outbox (id, `+column+`) VALUES ('odd', 'soon'), ('next', 0)`)
			src := open(t, cfg)
			page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10})
			if err != nil || len(page.Rows) != 2 {
				t.Fatalf("%+v, %v", page.Rows, err)
			}
			if list, err := src.List(t.Context(), core.Filter{}); err != nil || len(list) != 2 {
				t.Errorf("listed %d rows, %v", len(list), err)
			}
			taken, err := src.Acquire(t.Context(), "one", 1, time.Minute, false)
			if err != nil || len(taken) != 1 {
				t.Fatal(taken, err)
			}
			row := page.Rows[0]
			c := core.Change{Lease: taken[0].Lease, Settle: []core.Settlement{{Seq: row.Record.Seq, State: core.Published, Deliveries: row.Deliveries}}}
			if err := src.Step(t.Context(), "one", []core.Change{c}); err != nil {
				t.Fatal(err)
			}
			if info, _, err := src.Show(t.Context(), "odd"); err != nil || info.State != core.Published {
				t.Errorf("after its settlement: %+v, %v", info, err)
			}
		})
	}
}

func TestAFileThatIsReplacedIsNoticed(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	src := open(t, cfg)
	taken, err := src.Acquire(t.Context(), "one", 1, time.Minute, false)
	if err != nil || len(taken) != 1 {
		t.Fatal(taken, err)
	}
	announce := core.Change{Lease: taken[0].Lease, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{1}}}}
	if err := src.Moved(); err != nil {
		t.Errorf("nothing has moved: %v", err)
	}
	if err := os.Rename(cfg.Path, cfg.Path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := src.Moved(); err == nil || !strings.Contains(err.Error(), "deleted or renamed") {
		t.Errorf("when it is away: %v", err)
	}
	initialise(t, cfg)
	if err := src.Moved(); err == nil || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("when another is there: %v", err)
	}
	if err := src.Step(t.Context(), "one", []core.Change{announce}); !errors.Is(err, core.ErrLeaseNotOwned) {
		t.Errorf("rows were announced in a file that nobody finds: %v", err)
	}
	if kept, err := src.Renew(t.Context(), "one", []core.Lease{taken[0].Lease}, time.Minute); err != nil || len(kept) != 0 {
		t.Errorf("a lease on a file that nobody finds: %v, %v", kept, err)
	}
}

// While an application keeps a read transaction open the log can only grow. Afterwards it shrinks.
func TestTheLogShrinksAfterALongReadTransaction(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	src := open(t, cfg)
	db := application(t, cfg.Path)
	reader, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := reader.QueryRow(`SELECT count(*) FROM outbox`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	info := make([]byte, 1<<20)
	for i := range 80 {
		for j := range info {
			info[j] = byte(i) // SQLite does not write what has not changed
		}
		if _, err := src.Heartbeat(t.Context(), "one", info, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	size := func() int64 {
		stat, err := os.Stat(cfg.Path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return stat.Size()
	}
	if size() < 70<<20 {
		t.Fatalf("the log has %d bytes: this proves nothing", size())
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := src.Heartbeat(t.Context(), "one", info, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if size() > 66<<20 {
		t.Errorf("the log still has %d bytes", size())
	}
}

// Two processes that read, then write: https://github.com/RunLLM/aqueduct/pull/369. And a lease is judged by the time
// when the lock was got, not when it was asked for: https://github.com/Soju06/codex-lb/pull/1253.
func TestTimeIsReadUnderTheLock(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	src := open(t, cfg)
	db := application(t, cfg.Path)
	for what, call := range map[string]func(core.Lease) error{
		"step":    func(l core.Lease) error { return src.Step(t.Context(), "one", []core.Change{{Lease: l}}) },
		"release": func(l core.Lease) error { return src.Release(t.Context(), "one", l) },
	} {
		taken, err := src.Acquire(t.Context(), "one", 1, 40*time.Millisecond, false)
		if err != nil || len(taken) != 1 {
			t.Fatal(taken, err)
		}
		conn := immediate(t, db)
		answer := make(chan error, 1)
		go func() { answer <- call(taken[0].Lease) }()
		until(t, "the lease to run out", func() bool {
			leases, err := src.Leases(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return leases[0].Left <= 0
		})
		end(t, conn)
		if err := <-answer; !errors.Is(err, core.ErrLeaseNotOwned) {
			t.Errorf("a %s that waited for the lock until its lease had run out: %v", what, err)
		}
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for " + what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestWaitIsNotWokenByTheRelaysOwnCommits(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	src := open(t, cfg)
	execute(t, cfg.Path, `INSERT INTO outbox (id, payload) VALUES ('a', 'x')`)
	if err := src.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	woken := make(chan error, 1)
	go func() { woken <- src.Wait(ctx) }()
	publishAll(t, src)
	if err := <-woken; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait returned %v", err)
	}
}

// What the driver makes of a declared type must not reach a payload, an id or a key.
func TestStoredBytesDoNotDependOnDeclaredTypes(t *testing.T) {
	for _, declared := range []string{"", "TEXT", "BLOB", "DATETIME", "TIMESTAMP", "DATE", "BOOLEAN", "JSON"} {
		cfg := sqlite.Config{Path: file(t), Table: "outbox", Columns: columns("key", "key")}
		execute(t, cfg.Path, `CREATE TABLE outbox (id `+declared+` NOT NULL UNIQUE, key `+declared+`, payload `+declared+`)`)
		initialise(t, cfg)
		db := application(t, cfg.Path)
		for i, text := range []string{"2026-03-29 01:30:00", "2026-03-29T01:30:00Z", "true", `{"a": 1.0}`, "é 😀"} {
			if _, err := db.Exec(`INSERT INTO outbox (id, key, payload) VALUES (?1, ?1, ?1)`, text); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(`INSERT INTO outbox (id, payload) VALUES (?, ?)`, fmt.Sprint("blob", i), []byte("\xff\x00"+text)); err != nil {
				t.Fatal(err)
			}
		}
		page, err := sourcetest.Page(t.Context(), open(t, cfg), core.FetchRequest{Limit: 100})
		if err != nil || len(page.Rows) != 10 {
			t.Fatal(len(page.Rows), err)
		}
		for i, r := range page.Rows {
			want := r.Record.ID
			if i%2 == 1 {
				want = "\xff\x00" + page.Rows[i-1].Record.ID
			} else if r.Record.Key != want {
				t.Errorf("%s: the key of %q came as %q", declared, want, r.Record.Key)
			}
			if string(r.Record.Payload) != want || r.Invalid != "" {
				t.Errorf("%s: %q came as %q, invalid %q", declared, want, r.Record.Payload, r.Invalid)
			}
		}
	}
}

func TestCreatedIsReadAsApplicationsWriteIt(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox", Columns: columns("key", "key", "created", "at")}
	execute(t, cfg.Path, `CREATE TABLE outbox (id TEXT PRIMARY KEY, key, payload, at)`)
	initialise(t, cfg)
	want := time.Date(2026, 3, 29, 1, 30, 15, 0, time.UTC)
	for i, value := range []string{
		fmt.Sprint(want.Unix()), fmt.Sprint(want.UnixMilli()), fmt.Sprint(want.UnixMicro()), fmt.Sprint(want.Unix(), ".0"),
		"'2026-03-29 01:30:15'", "'2026-03-29T01:30:15Z'", "'2026-03-29T02:30:15+01:00'", "'2026-03-29 01:30:15.000'",
		"julianday('2026-03-29 01:30:15')", "CAST('2026-03-29 01:30:15' AS BLOB)",
		"'some day'", "NULL", "''",
	} {
		execute(t, cfg.Path, strings.ReplaceAll(fmt.Sprintf(`INSERT INTO outbox (id, payload, at) VALUES ('%02d', 'x', %s)`, i, value), " .0", ".0"))
	}
	page, err := sourcetest.Page(t.Context(), open(t, cfg), core.FetchRequest{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range page.Rows {
		got := r.Record.CreatedAt
		if r.Invalid != "" {
			t.Errorf("row %d is invalid: %s", i, r.Invalid)
		}
		if i < 10 && got.Sub(want).Abs() > time.Millisecond || i >= 10 && !got.IsZero() {
			t.Errorf("row %d: created at %v", i, got)
		}
	}
}

func TestARowWithoutAnIDIsInvalid(t *testing.T) {
	cfg := articleConfig(t)
	execute(t, cfg.Path, article)
	initialise(t, cfg)
	execute(t, cfg.Path, `INSERT INTO commands (command_id, payload) VALUES (NULL, 'x'), ('a', 'x')`)
	src := open(t, cfg)
	page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10})
	if err != nil || len(page.Rows) != 2 || page.Rows[0].Invalid == "" || page.Rows[1].Invalid != "" {
		t.Fatalf("%+v, %v", page.Rows, err)
	}
	if list, err := src.List(t.Context(), core.Filter{}); err != nil || len(list) != 2 {
		t.Errorf("listed %d rows, %v", len(list), err)
	}
}

func TestHeadersFromColumns(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "adopted", HeaderColumns: []layout.HeaderColumn{
		{Header: "tenant", Column: "TENANT_ID"}, {Header: "at", Column: "at"}, {Header: "trace", Column: "trace"}, {Header: "id", Column: "id"}}}
	execute(t, cfg.Path, `CREATE TABLE adopted (id TEXT PRIMARY KEY, aggregateid TEXT, payload TEXT, headers TEXT, tenant_id INTEGER, at DATETIME, trace TEXT)`,
		`INSERT INTO adopted VALUES ('a', 'k', 'x', '{"own": "1"}', 7, '2026-03-29 01:30:00', NULL), ('b', 'k', 'x', NULL, NULL, NULL, CAST(x'61ff' AS TEXT))`)
	if err := initWith(t, cfg, "pending"); err != nil {
		t.Fatal(err)
	}
	pending := func(cfg sqlite.Config, n int) []core.Row {
		t.Helper()
		page, err := sourcetest.Page(t.Context(), open(t, cfg), core.FetchRequest{Limit: 10})
		if err != nil || len(page.Rows) != n {
			t.Fatalf("%+v, %v", page.Rows, err)
		}
		return page.Rows
	}
	want := []core.Header{{Name: "own", Value: "1"}, {Name: "tenant", Value: "7"}, {Name: "at", Value: "2026-03-29 01:30:00"}, {Name: "id", Value: "a"}}
	rows := pending(cfg, 2)
	if !slices.Equal(rows[0].Record.Headers, want) || rows[0].Invalid != "" {
		t.Errorf("got %+v, want %v", rows[0], want)
	}
	if rows[1].Invalid != "header trace is not UTF-8" {
		t.Errorf("a header that is not UTF-8: %q", rows[1].Invalid)
	}
	cfg.HeaderColumns = append(cfg.HeaderColumns, layout.HeaderColumn{Header: "no", Column: "nothing"})
	if _, err := sqlite.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "no column nothing for the header no") {
		t.Errorf("a column that is not there: %v", err)
	}
	fresh := sqlite.Config{Path: file(t), Table: "outbox", HeaderColumns: []layout.HeaderColumn{
		{Header: "tenant", Column: "tenant"}, {Header: "again", Column: "Tenant"}, {Header: "id", Column: "ID"}, {Header: "key", Column: "aggregateid"}}}
	initialise(t, fresh)
	execute(t, fresh.Path, `INSERT INTO outbox (id, payload, tenant) VALUES ('a', 'x', 't')`)
	want = []core.Header{{Name: "tenant", Value: "t"}, {Name: "again", Value: "t"}, {Name: "id", Value: "a"}}
	if rows := pending(fresh, 1); !slices.Equal(rows[0].Record.Headers, want) {
		t.Errorf("in a new table: %+v", rows)
	}
}

// What is kept must not slow the fetch of what waits.
func TestFetchCostsTheSameBesidePublishedRows(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	src := open(t, cfg)
	measure := func() time.Duration {
		best := time.Hour
		for range 20 {
			begun := time.Now()
			if page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 100}); err != nil || len(page.Rows) != 2 {
				t.Fatal(len(page.Rows), err)
			}
			best = min(best, time.Since(begun))
		}
		return best
	}
	execute(t, cfg.Path, `INSERT INTO outbox (id, payload) VALUES ('first', 'x'), ('last', 'x')`)
	alone := measure()
	execute(t, cfg.Path, `DELETE FROM outbox WHERE id = 'last'`, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
		INSERT INTO outbox (id, payload, state) SELECT i, 'x', 'published' FROM n`, `INSERT INTO outbox (id, payload) VALUES ('last', 'x')`)
	if beside := measure(); beside > 5*alone+2*time.Millisecond {
		t.Errorf("two rows take %v beside 30,000 published ones, %v alone", beside, alone)
	}
}

func TestDeletedRowsAreInTheLedger(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox", DeletePublished: true}
	initialise(t, cfg)
	src := open(t, cfg)
	for range 2 {
		execute(t, cfg.Path, `INSERT INTO outbox (id, payload) VALUES ('a', 'x'), ('b', 'x'), ('c', 'x')`)
		publishAll(t, src)
	}
	var count int
	if err := application(t, cfg.Path).QueryRow(`SELECT sum(count) FROM connectd_ledger WHERE tbl = 'outbox' AND state = 'published'`).Scan(&count); err != nil || count != 6 {
		t.Errorf("the ledger has %d rows, %v", count, err)
	}
}

func TestTwoTablesInOneFileAreApart(t *testing.T) {
	path := file(t)
	var sources []*sqlite.Source
	for _, table := range []string{"orders", "bills"} {
		cfg := sqlite.Config{Path: path, Table: table}
		initialise(t, cfg)
		execute(t, path, `INSERT INTO `+table+` (id, payload) VALUES ('`+table+`', 'x')`)
		sources = append(sources, open(t, cfg))
	}
	for i, src := range sources {
		taken, err := src.Acquire(t.Context(), "one", 9, time.Minute, false)
		if err != nil || len(taken) != 1 {
			t.Fatal(taken, err)
		}
		c := core.Change{Lease: taken[0].Lease, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{1}}}}
		if err := src.Step(t.Context(), "one", []core.Change{c}); err != nil {
			t.Fatal(err)
		}
		if pulse, err := src.Heartbeat(t.Context(), fmt.Sprint("worker", i), nil, time.Minute); err != nil || pulse.Live != 1 {
			t.Errorf("live workers: %+v, %v", pulse, err)
		}
	}
	for i, src := range sources {
		if lag, err := src.Lag(t.Context()); err != nil || lag.Pending != 1 || lag.InFlight != 1 {
			t.Errorf("source %d: lag %+v, %v", i, lag, err)
		}
	}
}

// Keys are bytes, whatever the column's collation thinks of them.
func TestKeysOfACollatedColumnAreApart(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox", Columns: columns("key", "key")}
	execute(t, cfg.Path, `CREATE TABLE outbox (id BLOB NOT NULL UNIQUE, key TEXT COLLATE NOCASE, payload)`)
	initialise(t, cfg)
	execute(t, cfg.Path, `INSERT INTO outbox (id, key, payload, state) VALUES (x'61', 'KEY', 'x', 'held'), ('b', 'key', 'x', 'held'), ('c', 'KEY', 'x', 'pending'), ('d', 'key', 'x', 'pending')`)
	src := open(t, cfg)
	blocks, err := src.Blocking(t.Context(), 0, false)
	if err != nil || len(blocks) != 2 {
		t.Errorf("blocks: %v, %v", blocks, err)
	}
	page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10, Exclude: []string{"KEY"}})
	if err != nil || len(page.Rows) != 1 || page.Rows[0].Record.Key != "key" {
		t.Errorf("without KEY: %+v, %v", page.Rows, err)
	}
	list, err := src.List(t.Context(), core.Filter{Key: "key"})
	if err != nil || len(list) != 2 {
		t.Errorf("rows of key: %+v, %v", list, err)
	}
	if err := src.ReleaseRow(t.Context(), core.Act{ID: "a", By: "ops"}); err != nil {
		t.Errorf("a row whose id is a blob: %v", err)
	}
}

func TestAFileOfAnotherEncodingIsRefused(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	execute(t, cfg.Path, `PRAGMA encoding = 'UTF-16le'`, `CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregateid, payload)`)
	if _, err := sqlite.Plan(t.Context(), cfg, sqlite.InitOptions{}); err == nil || !strings.Contains(err.Error(), "UTF-16") {
		t.Errorf("planned: %v", err)
	}
}

// An application may delay a row, and computes the time as it likes. No row may hold up the others, and none may come early.
func TestNoAvailableAtStopsThePage(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	src := open(t, cfg)
	values := []struct {
		at   string
		late bool
	}{
		{"(julianday('now') - 2440587.5) * 86400000.0 + 60000.25", true},
		{"253402300799000", true}, // the year 9999
		{"9223372036854775807", true}, {"9e999", true},
		{"-9223372036854775808", false}, {"1.5", false}, {"'soon'", false}, {"x'00'", false},
	}
	for i, v := range values {
		execute(t, cfg.Path, fmt.Sprintf(`INSERT INTO outbox (id, payload, available_at) VALUES ('%d', 'x', %s)`, i, v.at))
	}
	page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Rows) != len(values) {
		t.Fatalf("%d rows, want %d", len(page.Rows), len(values))
	}
	for i, r := range page.Rows {
		if late := r.Wait > 0; late != values[i].late {
			t.Errorf("available_at %s: wait %v", values[i].at, r.Wait)
		}
	}
}

// Dead rows may be kept for ever; the keys that held rows hold back are read whenever a key may go on.
func TestKeptDeadRowsCostTheReadingOfHeldOnesNothing(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	src := open(t, cfg)
	execute(t, cfg.Path, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)
		INSERT INTO outbox (id, aggregateid, payload, state) SELECT 'id-' || i, 'k' || i, 'x', 'dead' FROM n`,
		`UPDATE outbox SET state = 'held' WHERE seq = 25000`)
	took := map[bool]time.Duration{}
	for _, dead := range []bool{true, false} {
		began := time.Now()
		blocks, err := src.Blocking(t.Context(), 0, dead)
		took[dead] = time.Since(began)
		if err != nil || !dead && (len(blocks) != 1 || blocks[0] != (core.Block{Key: "k25000", Seq: 25000})) {
			t.Fatalf("%d blocks, %v", len(blocks), err)
		}
	}
	if took[false] > took[true]/5 {
		t.Errorf("%v to read one held row among 50000 dead ones, %v to read them all", took[false], took[true])
	}
}

func TestARowWithoutNumbersIsInvalidAlone(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	execute(t, cfg.Path, `INSERT INTO outbox (id, payload, attempts) VALUES ('a', 'x', '')`, `INSERT INTO outbox (id, payload) VALUES ('b', 'x')`)
	page, err := sourcetest.Page(t.Context(), open(t, cfg), core.FetchRequest{Limit: 10})
	if err != nil || len(page.Rows) != 2 || page.Rows[0].Invalid == "" || page.Rows[1].Invalid != "" {
		t.Errorf("got %+v, %v", page.Rows, err)
	}
}
