package rowwork

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/sqlite"
)

// outbox is a real table with rows in these states, of ids r1, r2 and so on.
func outbox(t *testing.T, states ...core.State) (*sqlite.Source, *sql.DB) {
	t.Helper()
	cfg := sqlite.Config{Path: filepath.Join(t.TempDir(), "shop.db"), Table: "outbox"}
	plan, err := sqlite.Plan(t.Context(), cfg, sqlite.InitOptions{})
	if err == nil {
		err = sqlite.Apply(t.Context(), cfg, plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+cfg.Path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	fill(t, db, states...)
	source, err := sqlite.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	return source, db
}

// fill puts the rows into the table, in place of all that are there.
func fill(t *testing.T, db *sql.DB, states ...core.State) {
	t.Helper()
	text := "BEGIN; DELETE FROM outbox;"
	for i, state := range states {
		text += fmt.Sprintf("INSERT INTO outbox (seq, id, aggregateid, payload, state) VALUES (%[1]d, 'r%[1]d', 'k%[2]d', x'00ff', '%[3]s');", i+1, i%2, state)
	}
	if _, err := db.Exec(text + "COMMIT"); err != nil {
		t.Fatal(err)
	}
}

// acts notes which rows were changed, in order, and fails those it is told to.
type acts struct {
	core.Operator
	ids  []string
	fail func(id string) error
}

func (a *acts) Skip(ctx context.Context, act core.Act) error {
	if a.fail != nil {
		if err := a.fail(act.ID); err != nil {
			return err
		}
	}
	a.ids = append(a.ids, act.ID)
	return a.Operator.Skip(ctx, act)
}

func pick(t *testing.T, ops core.Operator, ids ...string) (rows []core.RowInfo) {
	t.Helper()
	for _, id := range ids {
		row, _, err := ops.Show(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// dump is the whole table.
func dump(t *testing.T, ops core.Operator) string {
	t.Helper()
	rows, err := ops.List(t.Context(), core.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, r := range rows {
		row, history, err := ops.Show(t.Context(), r.ID)
		fmt.Fprintf(&text, "%+v %+v %v\n", row, history, err)
	}
	return text.String()
}

const dead, held, pending = core.Dead, core.Held, core.Pending

// TestRowsAreChangedInOrder of their seqs, each once, whatever the pages, the states and what was picked besides.
func TestRowsAreChangedInOrder(t *testing.T) {
	states := []core.State{dead, held, dead, pending, dead, held, held, held, dead, dead, held, pending, dead}
	source, db := outbox(t)
	for _, c := range []struct {
		name   string
		filter *core.Filter
		picked []string
		want   string
	}{
		{"all", &core.Filter{}, nil, "r1 r2 r3 r5 r6 r7 r8 r9 r10 r11 r13"},
		{"a state", &core.Filter{State: held}, nil, "r2 r6 r7 r8 r11"},
		{"a key", &core.Filter{Key: "k1"}, nil, "r2 r6 r8 r10"},
		{"a range", &core.Filter{After: 2, UpTo: 9}, nil, "r3 r5 r6 r7 r8 r9"},
		{"picked", nil, []string{"r9", "r1", "r6"}, "r1 r6 r9"},
		{"picked besides", &core.Filter{Key: "k1"}, []string{"r13", "r6", "r1", "r7", "r13"}, "r1 r2 r6 r7 r8 r10 r13"},
		{"nothing", &core.Filter{Key: "k7"}, nil, ""},
	} {
		for _, page := range []int{1, 2, 3, 100} {
			fill(t, db, states...)
			a := &acts{Operator: source}
			w := Work{Rows: a, Verb: Skip, Filter: c.filter, Picked: pick(t, source, c.picked...), page: page}
			s, err := w.Do(t.Context(), func(Result) bool { return true })
			if got := strings.Join(a.ids, " "); got != c.want || err != nil || s.Changed != len(a.ids) || s.Failed != 0 || s.More {
				t.Errorf("%s, %d a page: %s, want %s (%+v, %v)", c.name, page, got, c.want, s, err)
			}
		}
	}
}

// TestWorkGoesOnWhereItStopped: a limit, or whoever reads the reports, ends it, and After is where to go on.
func TestWorkGoesOnWhereItStopped(t *testing.T) {
	source, _ := outbox(t, dead, held, dead, dead, held)
	a := &acts{Operator: source}
	w := Work{Rows: a, Verb: Skip, Filter: &core.Filter{}, Limit: 2}
	s, err := w.Do(t.Context(), func(Result) bool { return true })
	if err != nil || !s.More || s.After != 2 || s.Changed != 2 {
		t.Errorf("%+v %v", s, err)
	}
	w.Filter.After, w.Limit = s.After, 0
	s, err = w.Do(t.Context(), func(r Result) bool { return r.Row.Seq < 3 })
	if err != nil || !s.More || s.After != 3 {
		t.Errorf("%+v %v", s, err)
	}
	w.Filter.After, w.Limit = s.After, 2
	s, err = w.Do(t.Context(), func(Result) bool { return true })
	if err != nil || s.More || s.After != 5 || strings.Join(a.ids, " ") != "r1 r2 r3 r4 r5" {
		t.Errorf("%+v %v %v", s, err, a.ids)
	}
}

// TestRowsThatFailDoNotStopTheOthers, unless the database fails for one after the other.
func TestRowsThatFailDoNotStopTheOthers(t *testing.T) {
	broken := errors.New("connection refused")
	source, db := outbox(t)
	for _, c := range []struct {
		name            string
		fail            func(id string) error
		changed, failed int
		stopped         bool
	}{
		{"of the row", func(string) error { return core.ErrNoRow }, 0, 3 * giveUp, false},
		{"of the database, now and then", func(id string) error {
			if id == "r7" || id == "r17" {
				return broken
			}
			return nil
		}, 3*giveUp - 2, 2, false},
		{"of the database, from some time on", func(id string) error {
			if len(id) > 2 {
				return broken
			}
			return nil
		}, 9, giveUp, true},
	} {
		fill(t, db, slices.Repeat([]core.State{dead}, 3*giveUp)...)
		w := Work{Rows: &acts{Operator: source, fail: c.fail}, Verb: Skip, Filter: &core.Filter{}, page: 4}
		s, err := w.Do(t.Context(), func(Result) bool { return true })
		if s.Changed != c.changed || s.Failed != c.failed || (err != nil) != c.stopped || c.stopped && !errors.Is(err, broken) {
			t.Errorf("%s: %+v, %v", c.name, s, err)
		}
	}
}

// TestWorkEndsWithItsContext, after the row it was at.
func TestWorkEndsWithItsContext(t *testing.T) {
	source, _ := outbox(t, dead, dead, dead)
	ctx, cancel := context.WithCancel(t.Context())
	w := Work{Rows: source, Verb: Retry, Filter: &core.Filter{}}
	s, err := w.Do(ctx, func(Result) bool { cancel(); return true })
	if !errors.Is(err, context.Canceled) || s.Changed != 1 {
		t.Errorf("%+v %v", s, err)
	}
}

// TestDryRunChangesNothing, and tells of each row what would become of it.
func TestDryRunChangesNothing(t *testing.T) {
	source, _ := outbox(t, dead, held, pending, dead)
	before := dump(t, source)
	bad, good := `["no object"]`, `{"a":"b"}`
	for _, c := range []struct {
		work Work
		want string
	}{
		{Work{Verb: Retry, Filter: &core.Filter{}}, "r1:true r4:true"},
		{Work{Verb: Skip, Filter: &core.Filter{}}, "r1:true r2:true r4:true"},
		{Work{Verb: Release, Filter: &core.Filter{}, Picked: pick(t, source, "r3", "r4")}, "r2:true r3:false r4:false"},
		{Work{Verb: Retry, Picked: pick(t, source, "r1"), Edit: core.Edit{Headers: &good}}, "r1:true"},
		{Work{Verb: Retry, Picked: pick(t, source, "r1"), Edit: core.Edit{Headers: &bad}}, "r1:false"},
		{Work{Verb: Retry, Picked: pick(t, source, "r2"), Edit: core.Edit{Payload: []byte("new")}}, "r2:false"},
	} {
		c.work.Rows, c.work.DryRun = source, true
		var got []string
		s, err := c.work.Do(t.Context(), func(r Result) bool {
			got = append(got, fmt.Sprintf("%s:%v", r.Row.ID, r.Err == nil))
			return true
		})
		if strings.Join(got, " ") != c.want || err != nil || s.Changed+s.Failed != len(got) {
			t.Errorf("%s: %v, want %s (%v)", c.work.Verb, got, c.want, err)
		}
	}
	if after := dump(t, source); after != before {
		t.Errorf("changed from\n%s\nto\n%s", before, after)
	}
}

// TestEditWarnsOfEarlierVersions where there may be one.
func TestEditWarnsOfEarlierVersions(t *testing.T) {
	source, db := outbox(t, dead, dead)
	if _, err := db.Exec("UPDATE outbox SET deliveries = 3 WHERE id = 'r2'"); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"r1": false, "r2": true} {
		w := Work{Rows: source, Verb: Retry, Picked: pick(t, source, id), Edit: core.Edit{Payload: []byte("new")}, By: "eve", Why: "typo"}
		s, err := w.Do(t.Context(), func(r Result) bool {
			if got := strings.Contains(r.Warning, "earlier version under the same id"); got != want {
				t.Errorf("%s: %q", id, r.Warning)
			}
			return true
		})
		if err != nil || s.Changed != 1 {
			t.Errorf("%s: %+v %v", id, s, err)
		}
		row, history, err := source.Show(t.Context(), id)
		if err != nil || string(row.Payload) != "new" || row.State != pending || len(history) != 1 || !ByPerson(history[0]) || history[0].Message != "typo" {
			t.Errorf("%+v %+v %v", row, history, err)
		}
	}
}

func TestParseFilter(t *testing.T) {
	f, err := ParseFilter(map[string]string{"state": "dead", "key": "k", "type": "t", "reason": "no", "older": "1d", "newer": "2d12h"})
	want := core.Filter{State: dead, Key: "k", Type: "t", Reason: "no", Older: 24 * 3600e9, Newer: 60 * 3600e9}
	if err != nil || f != want {
		t.Errorf("%+v %v", f, err)
	}
	for _, c := range []struct{ name, value, want string }{
		{"key", "", "key is empty"},
		{"state", "ded", `did you mean "dead"?`},
		{"kye", "a", `did you mean "key"?`},
		{"older", "5", "older must be a duration with a unit"},
		{"newer", "0s", "newer must be above 0"},
		{"older", "-5s", "older must be a duration that is not negative"},
		{"reason", "a\x00b", "reason is not text"},
		{"type", "\xff", "type is not text"},
	} {
		if _, err := ParseFilter(map[string]string{c.name: c.value}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%q: %v", c.name, c.value, err)
		}
	}
}
