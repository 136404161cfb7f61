package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
)

// A table is dropped with rows announced, and made again: its numbers begin again, and no row of it has been sent.
func TestATableThatIsMadeAgain(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{Partitions: 1})
	insert := `INSERT INTO ` + cfg.Table + ` (id, aggregateid, payload) VALUES ('a', 'key', 'x')`
	acquire := func(owner string) (*postgres.Source, core.Acquired) {
		t.Helper()
		src := open(t, cfg)
		taken, err := src.Acquire(t.Context(), owner, 1, time.Minute, false)
		if err != nil || len(taken) != 1 {
			t.Fatalf("acquired %v, %v", taken, err)
		}
		return src, taken[0]
	}
	execute(t, insert)
	src, a := acquire("one")
	seq := pending(t, src)[0].Record.Seq
	if err := src.Step(t.Context(), "one", []core.Change{{Lease: a.Lease, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{seq}}}}}); err != nil {
		t.Fatal(err)
	}
	if err := src.Release(t.Context(), "one", a.Lease); err != nil {
		t.Fatal(err)
	}
	src.Close()
	execute(t, `DROP TABLE `+cfg.Table)
	initialise(t, cfg, postgres.InitOptions{})
	execute(t, insert)
	if _, a = acquire("two"); len(a.Recovered) > 0 {
		t.Errorf("rows of the new table count as sent: %+v", a.Recovered)
	}
}

// A table was renamed, with its indexes, and a new one is to have its name.
func TestAnIndexOfARenamedTableIsNotTakenForOurs(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{Partitions: 1})
	execute(t, `ALTER TABLE `+cfg.Table+` RENAME TO old`)
	err := initWith(t, cfg, postgres.InitOptions{})
	if err == nil || !strings.Contains(err.Error(), "belongs to another table") {
		t.Errorf("init says %v", err)
	}
}

// An outbox whose own relay notes states in words of its own must not be taken for one of ours.
func TestAStateOfTheApplicationsOwnIsRefused(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	execute(t, `CREATE TABLE `+cfg.Table+` (id text PRIMARY KEY, aggregateid text, payload text, state text NOT NULL DEFAULT 'pending')`,
		`INSERT INTO `+cfg.Table+` VALUES ('a', 'key', 'x', 'sent'), ('b', 'key', 'x', 'pending')`)
	err := initWith(t, cfg, postgres.InitOptions{})
	if err == nil || !strings.Contains(err.Error(), "map columns.state") {
		t.Errorf("init says %v", err)
	}
	cfg.Columns = columns("state", "connectd_state")
	initialise(t, cfg, postgres.InitOptions{Existing: "published"})
}

// A step is repeated while its first copy still runs: the repeat, whose snapshot is older than the first copy's end,
// changes nothing.
func TestAStepBesideItsRepeat(t *testing.T) {
	for _, deletes := range []bool{false, true} {
		cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox", DeletePublished: deletes}
		schema, _, _ := strings.Cut(cfg.Table, ".")
		initialise(t, cfg, postgres.InitOptions{Partitions: 1})
		execute(t, `INSERT INTO `+cfg.Table+` (id, payload) VALUES ('a', 'x'), ('b', 'x'), ('c', 'x')`)
		src := open(t, cfg)
		taken, err := src.Acquire(t.Context(), "me", 1, time.Minute, false)
		if err != nil || len(taken) != 1 {
			t.Fatalf("acquired %v, %v", taken, err)
		}
		l := taken[0].Lease
		if err := src.Step(t.Context(), "me", []core.Change{{Lease: l, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{1, 2}}}}}); err != nil {
			t.Fatal(err)
		}
		change := core.Change{Lease: l,
			Settle: []core.Settlement{
				{Seq: 1, State: core.Published},
				{Seq: 2, State: core.Pending, Attempts: 1, Failure: &core.Failure{Code: "refused", Message: "no"}},
			},
			Finished: []core.Finished{{Batch: 1}}, Announce: []core.Announcement{{Batch: 2, Seqs: []int64{3}}},
		}
		blocker := begin(t, cfg.DSN, `SELECT 1 FROM `+cfg.Table+` WHERE seq = 2 FOR UPDATE`)
		answers := make(chan error, 2)
		for n := range 2 {
			go func() { answers <- src.Step(t.Context(), "me", []core.Change{change}) }()
			until(t, "the step to wait", func() bool {
				return ask[int](t, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%'||$1||'%'`, schema) == n+1
			})
		}
		commit(t, blocker)
		for range 2 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		got := ask[string](t, `SELECT concat_ws(' ', (SELECT string_agg(concat_ws(',', seq, state, deliveries, attempts), ' ' ORDER BY seq) FROM `+cfg.Table+`),
			(SELECT count(*) FROM `+schema+`.connectd_attempt), (SELECT string_agg(concat(batch, seqs), ' ') FROM `+schema+`.connectd_inflight),
			(SELECT sum(count) FROM `+schema+`.connectd_ledger))`)
		want := "1,published,1,0 2,pending,1,1 3,pending,0,0 1 2{3}"
		if deletes {
			want = "2,pending,1,1 3,pending,0,0 1 2{3} 1"
		}
		if got != want {
			t.Errorf("there is %s, want %s", got, want)
		}
	}
}
