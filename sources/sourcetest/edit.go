package sourcetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var editTests = []test{
	{"List filters by reason, seq and age", listBounds},
	{"why and by whom a row was changed is in its history", whyChanged},
	{"a reason and a name are cleaned and cut", whyLong},
	{"Edit gives a dead row other content, and what it was is kept", editRow},
	{"what an edit does not name stays", editPart},
	{"Edit is refused in every other state, and for a row that is not there", editRefused},
	{"headers that no record could have are refused, and nothing is changed", editHeaders},
	{"no revision is thrown away: one edit more is refused", editOften},
	{"of an edit and a skip at the same time one is done", editOrSkip},
	{"Clean removes a row's revisions with it", cleanRevisions},
	{"a settlement that deletes a row removes its revisions with it", settleRevisions},
}

func (w *worker) listed(f core.Filter) []string {
	w.t.Helper()
	list, err := w.op.List(w.ctx, f)
	w.must(err)
	var ids []string
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids
}

func listBounds(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "a", "b", "c")...)
	w.settle(w.row("a"), core.Settlement{State: core.Dead, Failure: &core.Failure{Code: "http_422", Message: "100% of 'it' is_bad"}})
	w.settle(w.row("b"), core.Settlement{State: core.Dead, Failure: &core.Failure{Code: "http_500", Message: "IT is bad"}})
	w.hold("c")
	second, _ := w.show("b")
	for _, c := range []struct {
		filter core.Filter
		ids    []string
	}{
		{core.Filter{Reason: "http_422"}, []string{"a"}},
		{core.Filter{Reason: "http_"}, []string{"a", "b"}},
		{core.Filter{Reason: "100% of 'it'"}, []string{"a"}},
		{core.Filter{Reason: "is_bad"}, []string{"a"}},
		{core.Filter{Reason: "it is bad"}, nil}, // to the letter
		{core.Filter{State: core.Dead, Reason: "bad"}, []string{"a", "b"}},
		{core.Filter{State: core.Held, Reason: "bad"}, nil},
		{core.Filter{UpTo: second.Seq}, []string{"a", "b"}},
		{core.Filter{State: core.Dead, UpTo: second.Seq - 1}, []string{"a"}},
		{core.Filter{State: core.Held, UpTo: second.Seq}, nil},
		{core.Filter{Older: time.Hour}, nil},
		{core.Filter{State: core.Dead, Older: time.Hour}, nil},
		{core.Filter{Newer: time.Hour}, []string{"a", "b", "c"}},
		{core.Filter{State: core.Dead, Newer: time.Hour, Limit: 1}, []string{"a"}},
		{core.Filter{State: core.Held, Newer: time.Hour, Key: "k"}, []string{"c"}},
	} {
		if got := w.listed(c.filter); fmt.Sprint(got) != fmt.Sprint(c.ids) {
			t.Errorf("%+v: got %q, want %q", c.filter, got, c.ids)
		}
	}
	const old = 300 * time.Millisecond
	w.until("the rows to be old", func() bool { return len(w.listed(core.Filter{Older: old})) == 3 })
	table.Insert(t, keyed("k", "new")...)
	if got := w.listed(core.Filter{Newer: old}); len(got) > 1 || len(got) == 1 && got[0] != "new" {
		t.Errorf("rows that are no older than %v: %q", old, got)
	}
}

func whyChanged(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b")...)
	w.kill("a")
	w.must(w.op.Retry(w.ctx, core.Act{ID: "a", By: "alice", Why: "the endpoint is mended,\nsee 'ticket' 7"}))
	w.hold("b")
	w.must(w.op.ReleaseRow(w.ctx, core.Act{ID: "b", By: "bob", Why: "it was not there"}))
	w.kill("b")
	w.must(w.op.Skip(w.ctx, core.Act{ID: "b", By: "carol", Why: "paid by hand"}))
	for id, lines := range map[string][][3]string{
		"a": {{"retry", "the endpoint is mended, see 'ticket' 7", "alice"}},
		"b": {{"release", "it was not there", "bob"}, {"skip", "paid by hand", "carol"}},
	} {
		_, history := w.show(id)
		var got [][3]string
		for _, a := range history {
			if a.By != "one" {
				got = append(got, [3]string{a.Code, a.Message, a.By})
			}
		}
		if !reflect.DeepEqual(got, lines) {
			t.Errorf("%s: %q, want %q", id, got, lines)
		}
	}
}

func whyLong(t *testing.T, h Harness) {
	_, w := start(t, h, Row{ID: "a", Payload: []byte("p")})
	w.kill("a")
	long := strings.Repeat("ä\x1b\n\xff", core.MaxErrorText)
	w.must(w.op.Edit(w.ctx, core.Act{ID: "a", By: long, Why: long}, core.Edit{Payload: []byte("q")}))
	_, history := w.show("a")
	last := history[len(history)-1]
	want(t, "reason in the history", last.Message, core.CleanText(long))
	want(t, "name in the history", last.By, core.CleanText(long))
	list, err := w.op.Revisions(w.ctx, "a")
	w.must(err)
	want(t, "revisions", len(list), 1)
	want(t, "reason in the revision", list[0].Why, core.CleanText(long))
	want(t, "name in the revision", list[0].By, core.CleanText(long))
}

// sameJSON is equality of headers, which a database may write in its own way.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// headerOf is the value of a record's header, "" without one.
func headerOf(r found, name string) string {
	for _, h := range r.Record.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}

func editRow(t *testing.T, h Harness) {
	first, second, third := []byte("\x00\xff first"), []byte(`{"amount": 900}`), []byte{}
	_, w := start(t, h, Row{ID: "a", Key: "k", Keyed: true, Route: "r", Type: "ty", Payload: first, Headers: `{"h": "1"}`})
	was := w.row("a")
	w.settle(was, core.Settlement{State: core.Dead, Attempts: 3, Crashes: 2, Failure: &core.Failure{Code: "http_400"}})
	headers := `{"h": "2", "more": "ä"}`
	w.must(w.op.Edit(w.ctx, core.Act{ID: "a", By: "alice", Why: "a cent too much"}, core.Edit{Payload: second, Headers: &headers}))
	r := w.row("a")
	want(t, "payload", string(r.Record.Payload), string(second))
	want(t, "a header", headerOf(r, "more"), "ä")
	want(t, "seq", r.Record.Seq, was.Record.Seq)
	want(t, "key", r.Record.Key, "k")
	want(t, "route", r.Record.Route, "r")
	want(t, "type", r.Record.Type, "ty")
	want(t, "attempts", r.Attempts, 0)
	want(t, "deliveries", r.Deliveries, 1)
	want(t, "crashes", r.Crashes, 2)
	want(t, "due", r.Wait <= 0, true)
	w.settle(r, core.Settlement{State: core.Dead, Attempts: 1, Failure: &core.Failure{Code: "http_400"}})
	none := ""
	w.must(w.op.Edit(w.ctx, core.Act{ID: "a", By: "bob"}, core.Edit{Payload: third, Headers: &none}))
	r = w.row("a")
	want(t, "payload", string(r.Record.Payload), "")
	want(t, "headers", len(r.Record.Headers), 0)
	list, err := w.op.Revisions(w.ctx, "a")
	w.must(err)
	if len(list) != 2 {
		t.Fatalf("revisions: %+v", list)
	}
	if !bytes.Equal(list[0].Payload, first) || !sameJSON(list[0].Headers, `{"h": "1"}`) || list[0].By != "alice" || list[0].Why != "a cent too much" || time.Since(list[0].At).Abs() > time.Hour {
		t.Errorf("what the application committed: %+v", list[0])
	}
	if !bytes.Equal(list[1].Payload, second) || !sameJSON(list[1].Headers, headers) || list[1].By != "bob" {
		t.Errorf("what the first edit made of it: %+v", list[1])
	}
	_, history := w.show("a")
	want(t, "lines of history", len(history), 4)
	want(t, "the edit's line", history[1].Code+" "+history[1].Message+" "+history[1].By, "edit a cent too much alice")
}

func editPart(t *testing.T, h Harness) {
	_, w := start(t, h, Row{ID: "a", Payload: []byte("p"), Headers: `{"h": "1"}`})
	w.kill("a")
	w.must(w.op.Edit(w.ctx, core.Act{ID: "a", By: "ops"}, core.Edit{Payload: []byte("q")}))
	r := w.row("a")
	want(t, "payload", string(r.Record.Payload), "q")
	want(t, "the header", headerOf(r, "h"), "1")
	w.kill("a")
	headers := `{"h": "2"}`
	w.must(w.op.Edit(w.ctx, core.Act{ID: "a", By: "ops"}, core.Edit{Headers: &headers}))
	r = w.row("a")
	want(t, "payload", string(r.Record.Payload), "q")
	want(t, "the header", headerOf(r, "h"), "2")
	var content *core.ContentError
	if err := w.op.Edit(w.ctx, core.Act{ID: "a", By: "ops"}, core.Edit{}); !errors.As(err, &content) {
		t.Errorf("an edit of nothing: %v", err)
	}
}

func editRefused(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "pending", "held", "published", "skipped")...)
	w.hold("held")
	w.settle(w.row("published"), core.Settlement{State: core.Published})
	w.kill("skipped")
	w.must(w.op.Skip(w.ctx, core.Act{ID: "skipped", By: "ops"}))
	for _, id := range []string{"pending", "held", "published", "skipped"} {
		before, lines := w.show(id)
		var state *core.StateError
		err := w.op.Edit(w.ctx, core.Act{ID: id, By: "ops"}, core.Edit{Payload: []byte("other")})
		if !errors.As(err, &state) || state.State != core.State(id) || state.Want != "dead" {
			t.Errorf("edit of a row that is %s: %v", id, err)
		}
		w.unchanged(before, len(lines))
	}
	if err := w.op.Edit(w.ctx, core.Act{ID: "nobody", By: "ops"}, core.Edit{Payload: []byte("other")}); !errors.Is(err, core.ErrNoRow) {
		t.Errorf("edit of no row: %v", err)
	}
	if _, err := w.op.Revisions(w.ctx, "nobody"); !errors.Is(err, core.ErrNoRow) {
		t.Errorf("revisions of no row: %v", err)
	}
}

// unchanged checks that a row is as it was and was never edited.
func (w *worker) unchanged(before core.RowInfo, lines int) {
	w.t.Helper()
	after, history := w.show(before.ID)
	if !reflect.DeepEqual(before, after) || len(history) != lines {
		w.t.Errorf("the row was %+v with %d lines of history, is %+v with %d", before, lines, after, len(history))
	}
	list, err := w.op.Revisions(w.ctx, before.ID)
	w.must(err)
	want(w.t, "revisions", len(list), 0)
}

func editHeaders(t *testing.T, h Harness) {
	_, w := start(t, h, Row{ID: "a", Payload: []byte("p")})
	w.kill("a")
	before, lines := w.show("a")
	for _, headers := range []string{`{"h": `, `["h"]`, `7`} {
		var content *core.ContentError
		if err := w.op.Edit(w.ctx, core.Act{ID: "a", By: "ops"}, core.Edit{Payload: []byte("q"), Headers: &headers}); !errors.As(err, &content) {
			t.Errorf("headers %s: %v", headers, err)
		}
		w.unchanged(before, len(lines))
	}
}

func editOften(t *testing.T, h Harness) {
	_, w := start(t, h, Row{ID: "a", Payload: []byte("0")})
	for n := 1; n <= core.MaxRevisions; n++ {
		w.kill("a")
		w.must(w.op.Edit(w.ctx, core.Act{ID: "a", By: "ops"}, core.Edit{Payload: fmt.Append(nil, n)}))
	}
	w.kill("a")
	var content *core.ContentError
	if err := w.op.Edit(w.ctx, core.Act{ID: "a", By: "ops"}, core.Edit{Payload: []byte("more")}); !errors.As(err, &content) {
		t.Errorf("one edit more: %v", err)
	}
	list, err := w.op.Revisions(w.ctx, "a")
	w.must(err)
	want(t, "revisions", len(list), core.MaxRevisions)
	for n, r := range list {
		want(t, "payload", string(r.Payload), fmt.Sprint(n))
	}
	info, _ := w.show("a")
	want(t, "payload", string(info.Payload), fmt.Sprint(core.MaxRevisions))
	want(t, "state", info.State, core.Dead)
}

func editOrSkip(t *testing.T, h Harness) {
	table, w := start(t, h)
	other := join(t, table, "two")
	for n := range 10 {
		id := fmt.Sprint("row", n)
		table.Insert(t, Row{ID: id, Payload: []byte("p")})
		w.kill(id)
		var edited, skipped error
		var wg sync.WaitGroup
		wg.Go(func() { edited = w.op.Edit(w.ctx, core.Act{ID: id, By: "a"}, core.Edit{Payload: []byte("q")}) })
		wg.Go(func() { skipped = other.op.Skip(other.ctx, core.Act{ID: id, By: "b"}) })
		wg.Wait()
		if (edited == nil) == (skipped == nil) {
			t.Fatalf("edit: %v, skip: %v", edited, skipped)
		}
		info, _ := w.show(id)
		list, err := w.op.Revisions(w.ctx, id)
		w.must(err)
		if edited == nil && (info.State != core.Pending || string(info.Payload) != "q" || len(list) != 1) ||
			skipped == nil && (info.State != core.Skipped || string(info.Payload) != "p" || len(list) != 0) {
			t.Fatalf("edit: %v, skip: %v, the row is %+v, revisions %+v", edited, skipped, info, list)
		}
	}
}

func cleanRevisions(t *testing.T, h Harness) {
	table, w := start(t, h, Row{ID: "a", Payload: []byte("p")})
	w.kill("a")
	w.must(w.op.Edit(w.ctx, core.Act{ID: "a", By: "ops"}, core.Edit{Payload: []byte("q")}))
	w.publish("a")
	r := keepAll
	r.Published = 0
	want(t, "removed", w.clean(r)[core.Published], 1)
	if table.Lines == nil {
		t.Log("not tested: that the revisions go")
	} else {
		want(t, "lines of history and revisions", table.Lines(t), 0)
	}
}

func settleRevisions(t *testing.T, h Harness) {
	table := h.New(t, Options{DeletePublished: true})
	table.Insert(t, Row{ID: "a", Payload: []byte("p")})
	w := join(t, table, "one")
	w.acquireAll()
	w.kill("a")
	w.must(w.op.Edit(w.ctx, core.Act{ID: "a", By: "ops"}, core.Edit{Payload: []byte("q")}))
	w.settle(w.row("a"), core.Settlement{State: core.Published})
	if table.Lines == nil {
		t.Log("not tested: that the revisions go")
	} else {
		want(t, "lines of history and revisions", table.Lines(t), 0)
	}
}
