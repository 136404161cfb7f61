package mysql_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

const longLease = time.Minute

// acquired takes every lease for owner.
func acquired(t *testing.T, src *mysql.Source, owner string) []core.Lease {
	t.Helper()
	taken, err := src.Acquire(t.Context(), owner, 10_000, longLease, false)
	must(t, err)
	var leases []core.Lease
	for _, a := range taken {
		leases = append(leases, a.Lease)
	}
	return leases
}

// one is a table of one partition.
func (srv server) one(t *testing.T, ddl ...string) (mysql.Config, *mysql.Source) {
	t.Helper()
	cfg := srv.config(t)
	if len(ddl) > 0 {
		srv.execute(t, cfg, ddl...)
	}
	initialise(t, cfg, mysql.InitOptions{Partitions: 1})
	return cfg, source(t, cfg)
}

// Payloads come as the database gives them, whatever the column and its character set.
func TestPayloadColumns(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		const odd = `{"b": 1, "a":1.0 , "x": "😀 é"}`
		for kind, want := range map[string]string{
			"longblob": odd, "mediumblob": odd, "varbinary(200)": odd, "longtext CHARACTER SET utf8mb4": odd, "varchar(200) CHARACTER SET utf8mb4": odd,
			"text CHARACTER SET utf16": odd, "json": odd,
		} {
			t.Run(kind, func(t *testing.T) {
				cfg, src := srv.one(t, `CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload `+kind+`) ENGINE=InnoDB DEFAULT CHARACTER SET latin1`)
				db := open(t, cfg.DSN)
				_, err := db.Exec(`INSERT INTO outbox (id, payload) VALUES ('a', ?)`, odd)
				must(t, err)
				if kind == "json" { // MySQL normalises it; what it gives is what counts
					must(t, db.QueryRow(`SELECT CAST(payload AS CHAR) FROM outbox`).Scan(&want))
				}
				rows := pendingRows(t, src)
				if got := string(rows[0].Record.Payload); got != want || rows[0].Invalid != "" {
					t.Errorf("payload %q, want %q, invalid %q", got, want, rows[0].Invalid)
				}
				info, _, err := src.Show(t.Context(), "a")
				if err != nil || string(info.Payload) != want {
					t.Errorf("shown %q, %v", info.Payload, err)
				}
			})
		}
	})
}

// Keys are bytes, whatever the column's collation thinks of them.
func TestKeysOfACollatedColumnAreApart(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t, `CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64) CHARACTER SET latin1 COLLATE latin1_swedish_ci, payload blob) ENGINE=InnoDB`)
		srv.execute(t, cfg, `INSERT INTO outbox (id, aggregateid, state) VALUES ('a', 'KÉY', 'held'), ('b', 'kéy', 'held'), ('c', 'kéy ', 'held'), ('d', 'KÉY', 'pending'), ('e', 'kéy', 'pending'), ('f', 'kéy ', 'pending')`)
		blocks, err := src.Blocking(t.Context(), 0, false)
		if err != nil || len(blocks) != 3 {
			t.Errorf("blocks: %v, %v", blocks, err)
		}
		page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10, Exclude: []string{"KÉY", "kéy "}})
		if err != nil || len(page.Rows) != 1 || page.Rows[0].Record.Key != "kéy" {
			t.Errorf("without the others: %+v, %v", page.Rows, err)
		}
		list, err := src.List(t.Context(), core.Filter{Key: "kéy"})
		if err != nil || len(list) != 2 {
			t.Errorf("rows of the key: %+v, %v", list, err)
		}
	})
}

// An id is the one that was asked for, though the column's collation finds another.
func TestIDsOfACollatedColumn(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t, `CREATE TABLE outbox (id varchar(64) COLLATE utf8mb4_general_ci PRIMARY KEY, aggregateid varchar(64), payload blob) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4`)
		srv.execute(t, cfg, `INSERT INTO outbox (id, state) VALUES ('abc', 'dead')`)
		if _, _, err := src.Show(t.Context(), "ABC"); !errors.Is(err, core.ErrNoRow) {
			t.Errorf("show ABC: %v", err)
		}
		if err := src.Skip(t.Context(), core.Act{ID: "ABC", By: "ops"}); !errors.Is(err, core.ErrNoRow) {
			t.Errorf("skip ABC: %v", err)
		}
		must(t, src.Skip(t.Context(), core.Act{ID: "abc", By: "ops"}))
	})
}

func TestCreatedIsReadAsApplicationsWriteIt(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		want := time.Date(2026, 3, 29, 1, 30, 15, 0, time.UTC) // an hour that London does not have
		for kind, value := range map[string]string{
			"datetime": "'2026-03-29 01:30:15'", "datetime(6)": "'2026-03-29 01:30:15.000000'", "timestamp": "from_unixtime(1774747815)",
			"bigint": "1774747815000", "int unsigned": "1774747815", "varchar(40)": "'2026-03-29T01:30:15Z'", "date": "'2026-03-29'",
		} {
			cfg, src := srv.one(t, `CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob, created_at `+kind+` NULL) ENGINE=InnoDB`)
			srv.execute(t, cfg, `INSERT INTO outbox (id, created_at) VALUES ('a', `+value+`), ('b', NULL)`)
			rows := pendingRows(t, src)
			if kind == "date" {
				want = want.Truncate(24 * time.Hour)
			} else {
				want = time.Date(2026, 3, 29, 1, 30, 15, 0, time.UTC)
			}
			if got := rows[0].Record.CreatedAt; !got.Equal(want) || !rows[1].Record.CreatedAt.IsZero() {
				t.Errorf("%s: created at %v and %v", kind, got, rows[1].Record.CreatedAt)
			}
		}
	})
}

// An application may delay a row, and computes the time as it likes. None may come early, and none stop the others.
func TestNoAvailableAtStopsThePage(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t)
		db := open(t, cfg.DSN)
		conn, err := db.Conn(t.Context())
		must(t, err)
		defer conn.Close()
		_, err = conn.ExecContext(t.Context(), `SET sql_mode = ''`)
		must(t, err)
		_, err = conn.ExecContext(t.Context(), `INSERT INTO outbox (id, available_at) VALUES ('a', utc_timestamp(6) + INTERVAL 1 HOUR), ('b', '9999-12-31 23:59:59'), ('c', '0000-00-00'), ('d', '1000-01-01'), ('e', '1970-01-01')`)
		must(t, err)
		for _, r := range pendingRows(t, src) {
			if late := r.Wait > 0; late != (r.Record.ID < "c") {
				t.Errorf("row %s waits %v", r.Record.ID, r.Wait)
			}
		}
	})
}

// The index serves exactly the fetch, whatever the statistics say, and rows are settled by their numbers.
func TestPlans(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for _, adopted := range []bool{false, true} {
			for _, analysedEmpty := range []bool{true, false} {
				t.Run(fmt.Sprintf("adopted %v, analysed empty %v", adopted, analysedEmpty), func(t *testing.T) {
					cfg := srv.config(t)
					order := "PRIMARY"
					if adopted {
						order = "connectd_order"
						srv.execute(t, cfg, `CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob) ENGINE=InnoDB`)
					}
					initialise(t, cfg, mysql.InitOptions{})
					fill := `INSERT INTO outbox (id, aggregateid, payload, state) SELECT uuid(), concat('k', floor(rand() * 50)), 'x', if(rand() < 0.9, 'published', 'pending') FROM information_schema.collations a, (SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6) b LIMIT 1500`
					statements := []string{`ANALYZE TABLE outbox`, fill}
					if !analysedEmpty {
						slices.Reverse(statements)
					}
					srv.execute(t, cfg, statements...)
					src := source(t, cfg)
					many := make([]int64, 3000)
					for i := range many {
						many[i] = int64(i)
					}
					for what, known := range map[string][]int64{"nothing known": nil, "some known": many[:700], "many known": many} {
						plan, err := src.ExplainText(t.Context(), src.FetchText(3, 5, known, 2), []byte("k1"), []byte("k2"))
						must(t, err)
						if !strings.Contains(plan, "range by connectd_pending") || strings.Contains(plan, "filesort") || strings.Contains(plan, "temporary") {
							t.Errorf("fetch, %s: %s", what, plan)
						}
					}
					if plan, err := src.Explain(t.Context()); err != nil || !strings.Contains(plan, "connectd_pending") || strings.Contains(plan, "filesort") {
						t.Errorf("explained: %s, %v", plan, err)
					}
					count, ofKey := src.QueueTexts(core.RowInfo{Part: 3, Seq: 1000})
					for text, args := range map[string][]any{count: nil, ofKey: {[]byte("k1")}} {
						plan, err := src.ExplainText(t.Context(), text, args...)
						must(t, err)
						if !strings.Contains(plan, "range by connectd_pending") || strings.Contains(plan, "filesort") {
							t.Errorf("%.60s: %s", text, plan)
						}
					}
					for _, text := range src.PublishTexts(many[1:500]) {
						plan, err := src.ExplainText(t.Context(), text)
						must(t, err)
						if !strings.Contains(plan, "range by "+order) {
							t.Errorf("%.40s: %s", text, plan)
						}
					}
				})
			}
		}
	})
}

// What is kept must not slow the fetch of what waits.
func TestFetchCostsTheSameBesidePublishedRows(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t)
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
		srv.execute(t, cfg, `INSERT INTO outbox (id, payload) VALUES ('first', 'x'), ('last', 'x')`)
		alone := measure()
		srv.execute(t, cfg, `INSERT INTO outbox (id, payload, state) SELECT uuid(), 'x', 'published' FROM information_schema.collations a, information_schema.collations b LIMIT 30000`,
			`UPDATE outbox SET seq = seq + 1000000 WHERE id = 'last'`)
		if beside := measure(); beside > 5*alone+2*time.Millisecond {
			t.Errorf("two rows take %v beside 30,000 published ones, %v alone", beside, alone)
		}
	})
}

// A page of large rows is cut by its bytes, and what the server would still send is not read.
func TestLargeRowsAreNotReadInVain(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t)
		db := open(t, cfg.DSN)
		payload := bytes.Repeat([]byte("x"), 1<<20)
		for i := range 40 {
			_, err := db.Exec(`INSERT INTO outbox (id, payload) VALUES (?, ?)`, i, payload)
			must(t, err)
		}
		through, p := behindProxy(t, cfg)
		narrow := source(t, through)
		for range 3 {
			page, err := sourcetest.Page(t.Context(), narrow, core.FetchRequest{Limit: 500, MaxBytes: 1 << 20})
			if err != nil || len(page.Rows) != 1 || !page.More {
				t.Fatalf("%d rows, more %v, %v", len(page.Rows), page.More, err)
			}
		}
		must(t, narrow.Close())
		p.away()
		p.wg.Wait()
		if n := p.bytes.Load(); n < 3<<20 || n > 40<<20 {
			t.Errorf("%d bytes were read for three rows of a mebibyte", n)
		}
		if rows := pendingRows(t, src); len(rows) != 40 || !bytes.Equal(rows[39].Record.Payload, payload) {
			t.Errorf("%d rows", len(rows))
		}
	})
}

func TestDeletedRowsAreInTheLedger(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		cfg.DeletePublished = true
		initialise(t, cfg, mysql.InitOptions{})
		src := source(t, cfg)
		for range 2 {
			srv.execute(t, cfg, `INSERT INTO outbox (id, payload) VALUES ('a', 'x'), ('b', 'x'), ('c', 'x')`)
			publishAll(t, src)
		}
		var count int
		if err := open(t, cfg.DSN).QueryRow(`SELECT sum(count) FROM connectd_ledger WHERE tbl = 'outbox' AND state = 'published'`).Scan(&count); err != nil || count != 6 {
			t.Errorf("the ledger has %d rows, %v", count, err)
		}
	})
}

func TestTwoTablesInOneDatabaseAreApart(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		var sources []*mysql.Source
		for _, table := range []string{"orders", "Orders2"} {
			cfg.Table = table
			initialise(t, cfg, mysql.InitOptions{Partitions: 1})
			srv.execute(t, cfg, `INSERT INTO `+table+` (id, payload) VALUES ('`+table+`', 'x')`)
			sources = append(sources, source(t, cfg))
		}
		for i, src := range sources {
			leases := acquired(t, src, "one")
			if len(leases) != 1 {
				t.Fatal(leases)
			}
			must(t, src.Step(t.Context(), "one", []core.Change{{Lease: leases[0], Announce: []core.Announcement{{Batch: 1, Seqs: []int64{1}}}}}))
			if pulse, err := src.Heartbeat(t.Context(), fmt.Sprint("worker", i), nil, time.Minute); err != nil || pulse.Live != 1 {
				t.Errorf("live workers: %+v, %v", pulse, err)
			}
		}
		for i, src := range sources {
			if lag, err := src.Lag(t.Context()); err != nil || lag.Pending != 1 || lag.InFlight != 1 {
				t.Errorf("source %d: lag %+v, %v", i, lag, err)
			}
		}
	})
}

// A row that nobody can name is found, and buried by the engine.
func TestARowWithoutAnIDIsInvalid(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t, `CREATE TABLE outbox (id varchar(64) NULL UNIQUE, aggregateid varchar(64), payload blob) ENGINE=InnoDB`)
		srv.execute(t, cfg, `INSERT INTO outbox (payload) VALUES ('x')`, `INSERT INTO outbox (id, payload) VALUES ('a', 'x')`)
		rows := pendingRows(t, src)
		if len(rows) != 2 || rows[0].Invalid == "" || rows[1].Invalid != "" {
			t.Fatalf("%+v", rows)
		}
		if list, err := src.List(t.Context(), core.Filter{}); err != nil || len(list) != 2 {
			t.Errorf("listed %d rows, %v", len(list), err)
		}
	})
}

func TestHeadersFromColumnsOfANewTable(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		cfg.HeaderColumns = []layout.HeaderColumn{{Header: "tenant", Column: "tenant"}, {Header: "again", Column: "Tenant"}, {Header: "id", Column: "ID"}, {Header: "key", Column: "aggregateid"}}
		initialise(t, cfg, mysql.InitOptions{Partitions: 1})
		srv.execute(t, cfg, `INSERT INTO outbox (id, payload, headers, tenant) VALUES ('a', 'x', '{"own": "1"}', 't')`)
		rows := pendingRows(t, source(t, cfg))
		want := []core.Header{{Name: "own", Value: "1"}, {Name: "tenant", Value: "t"}, {Name: "again", Value: "t"}, {Name: "id", Value: "a"}}
		if len(rows) != 1 || !slices.Equal(rows[0].Record.Headers, want) {
			t.Errorf("got %+v, want %v", rows, want)
		}
	})
}

// A column added while the daemon runs changes nothing.
func TestAColumnIsAddedWhileWeRun(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for _, options := range []string{"interpolateParams=true", "interpolateParams=false"} {
			cfg := srv.config(t)
			cfg.DSN = withOptions(cfg.DSN, options)
			initialise(t, cfg, mysql.InitOptions{})
			src := source(t, cfg)
			for i := range 5 {
				srv.execute(t, cfg, fmt.Sprintf(`INSERT INTO outbox (id, payload) VALUES ('%d', 'x')`, i))
				publishAll(t, src)
				srv.execute(t, cfg, fmt.Sprintf(`ALTER TABLE outbox ADD COLUMN more%d int FIRST`, i))
			}
			if lag, err := src.Lag(t.Context()); err != nil || lag.Pending != 0 {
				t.Errorf("%+v, %v", lag, err)
			}
		}
	})
}

// Old tables have a TIMESTAMP that changes with the row. What the relay changes is not the time of insertion.
func TestCreatedStays(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t, `CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob, created_at timestamp NOT NULL DEFAULT current_timestamp ON UPDATE current_timestamp) ENGINE=InnoDB`)
		srv.execute(t, cfg, `INSERT INTO outbox (id, created_at) VALUES ('a', '2026-01-01'), ('b', '2026-01-01'), ('c', '2026-01-01')`)
		created := pendingRows(t, src)[0].Record.CreatedAt
		lease := acquired(t, src, "one")[0]
		must(t, src.Step(t.Context(), "one", []core.Change{{Lease: lease, Settle: []core.Settlement{
			{Seq: 1, State: core.Published}, {Seq: 2, State: core.Dead, Attempts: 1, Failure: &core.Failure{Code: "x"}},
		}, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{3}}}}}))
		must(t, src.Retry(t.Context(), core.Act{ID: "b", By: "ops"}))
		must(t, src.Release(t.Context(), "one", lease))
		acquired(t, src, "two")
		list, err := src.List(t.Context(), core.Filter{})
		must(t, err)
		for _, r := range list {
			if !r.CreatedAt.Equal(created) || r.Deliveries != 1 {
				t.Errorf("%+v", r)
			}
		}
	})
}

// As many partitions as there may be are served by statements as long as that.
func TestManyPartitions(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{Partitions: mysql.MaxPartitions})
		srv.execute(t, cfg, `INSERT INTO outbox (id, payload) SELECT concat('row', lpad(n, 4, '0')), 'x' FROM (SELECT row_number() OVER () n FROM information_schema.collations a, (SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4) b) numbers WHERE n <= 1000 ORDER BY n`)
		src := source(t, cfg)
		leases := acquired(t, src, "one")
		if len(leases) != mysql.MaxPartitions {
			t.Fatalf("%d leases", len(leases))
		}
		if kept, err := src.Renew(t.Context(), "one", leases, longLease); err != nil || len(kept) != len(leases) {
			t.Errorf("%d renewed, %v", len(kept), err)
		}
		list, err := src.List(t.Context(), core.Filter{State: core.Pending, Limit: 700, After: 100})
		if err != nil || len(list) != 700 || list[0].ID != "row0101" || list[699].ID != "row0800" {
			t.Errorf("listed %d rows, %v", len(list), err)
		}
		if lag, err := src.Lag(t.Context()); err != nil || lag.Pending != 1000 {
			t.Errorf("%+v, %v", lag, err)
		}
	})
}
