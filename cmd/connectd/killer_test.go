package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestKillersEndDeadAlone: a record that crashes the sink's process, one that makes it panic, one that hangs it and one that
// kills the daemon are each dead after six crashes, alone, with reason crash and no attempt counted; their neighbours all
// arrive, in order, the later rows of their own keys by on_dead: they go on, or wait for a person. Two killers at once are
// told apart too (D6: the row that is at its limit is buried by the very crash, not at some next encounter).
func TestKillersEndDeadAlone(t *testing.T) {
	t.Parallel()
	for name, kinds := range map[string][]string{
		"crash": {"crash"}, "panic": {"panic"}, "hang": {"hang"}, "kills the daemon": {"parent"},
		"two that crash": {"crash", "crash"}, "two that kill the daemon": {"parent", "parent"}, "one of each": {"crash", "hang", "parent"},
	} {
		for _, onDead := range []string{"continue", "block"} {
			t.Run(name+" "+onDead, func(t *testing.T) {
				t.Parallel()
				killers(t, kinds, onDead)
			})
		}
	}
}

// killers lets a daemon meet records of these types among others.
func killers(t *testing.T, kinds []string, onDead string) {
	dir := t.TempDir()
	installTorture(t, dir)
	config := tortureConfig(", path: "+filepath.Join(dir, "out.jsonl"), ", timeout: 500ms, on_dead: "+onDead)
	write(t, dir, "connectd.yaml", strings.Replace(config, "lease: 2s", "lease: 1s", 1))
	connectd(t, dir, "init").want(t, 0)
	s := openShop(t, dir)
	const rows, keys = 60, 10
	s.insert(rows, keys)
	// Ids end in their number, and the number in its key's. Killers are of different keys, at the front and in the middle.
	var dead []string
	behind := 0 // rows that wait behind a dead one under block
	for i, kind := range kinds {
		n := 1 + 12*i
		id := fmt.Sprintf("id-%06d", n)
		dead = append(dead, id)
		behind += (rows - n) / keys
		s.exec("UPDATE outbox SET type = ? WHERE id = ?", kind, id)
	}
	arrive := rows - len(kinds)
	if onDead == "block" {
		arrive -= behind
	}
	m := manage(t, dir)
	eventually(t, "the killers are dead and the others delivered", func() (bool, string) {
		d, p := s.count("dead"), s.count("published")
		return d == len(kinds) && p == arrive, fmt.Sprintf("%d dead, %d published of %d, %d starts", d, p, arrive, m.starts())
	})
	audit(t, dir, arrive)
	var attempts int
	if err := s.db.QueryRow("SELECT max(attempts) FROM outbox").Scan(&attempts); err != nil || attempts != 0 {
		t.Errorf("rows were charged %d attempts, %v", attempts, err)
	}
	for _, id := range dead {
		e := explained(t, dir, nil, id)
		if r := e.find(t, "dead"); r.Crashes != 6 || r.Error.Code != "crash" || !strings.Contains(e.Do, "rows retry "+id) {
			t.Errorf("%+v", e)
		}
		connectd(t, dir, "rows", "show", id).want(t, 0, "state        dead", "crashes      6 of 6", "attempts     0", "crash")
	}
	if onDead == "block" {
		if e := explained(t, dir, nil, "id-000011"); e.find(t, "behind_dead").Row.ID != "id-000001" {
			t.Errorf("%+v", e)
		}
	}
	retriedKiller(t, dir, s, m, dead[0], kinds[0])
	// Mended, it goes, and what waited behind it.
	s.exec("UPDATE outbox SET type = 'mended' WHERE state = 'dead'")
	for _, id := range dead {
		operate(t, dir, "retry", id)
	}
	s.published(rows)
	came := map[string]int{}
	for _, a := range arrivals(t, dir) {
		came[a.ID]++
	}
	if len(came) != rows {
		t.Errorf("%d rows arrived, want %d", len(came), rows)
	}
}

// retriedKiller: it costs one more crash, not six; it is buried again, and can be retried again (D7).
func retriedKiller(t *testing.T, dir string, s *shop, m *manager, id, kind string) {
	t.Helper()
	for range 2 {
		before := m.crashes()
		operate(t, dir, "retry", id)
		eventually(t, "the retried killer is dead again", func() (bool, string) {
			state, _ := rowState(t, s, id)
			return state == "dead", state
		})
		if kind != "hang" {
			eventually(t, "what it killed is seen", func() (bool, string) { n := m.crashes() - before; return n >= 1, fmt.Sprint(n) })
			if n := m.crashes() - before; n != 1 {
				t.Errorf("the retried killer crashed its process %d times", n)
			}
		}
	}
}
