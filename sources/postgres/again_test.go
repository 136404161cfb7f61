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
	if err := src.Step(t.Context(), "one", core.Change{Lease: a.Lease, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{seq}}}}); err != nil {
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
