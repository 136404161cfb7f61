package sourcetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var fetchTests = []test{
	{"rows come in seq order, past After", fetchOrder},
	{"a page with a row that came back tells what operators had changed", fetchChanges},
	{"the order is that of numbers, whatever was written last", fetchOrderRewritten},
	{"Known rows and excluded keys are left out, rows without a key never", fetchExclude},
	{"excluded keys do not fill the page", fetchExcludedFirst},
	{"any key can be excluded", fetchExcludeOdd},
	{"Limit cuts the page and More says so", fetchLimit},
	{"MaxBytes ends the page with the row that reaches it", fetchBytes},
	{"only pending rows come", fetchPending},
	{"rows that are not due come with a positive Wait", fetchNotDue},
	{"due by Fetch is due by Lag", fetchDue},
	{"a partition that is not has no rows", fetchNoPartition},
	{"rows of one key are in one partition", fetchPartition},
	{"Fetch needs no lease and writes nothing", fetchReads},
	{"Blocking lists each key's lowest held row, with dead also dead ones", blocking},
}

func fetchOrder(t *testing.T, h Harness) {
	table, w := start(t, h, keyed("k", "c", "a")...)
	table.Insert(t, keyed("k", "b")...)
	part := w.row("a").part
	page := w.fetch(core.FetchRequest{Part: part})
	wantIDs(t, "rows", page.Rows, "c", "a", "b")
	want(t, "More", page.More, false)
	for i := 1; i < len(page.Rows); i++ {
		if page.Rows[i].Record.Seq <= page.Rows[i-1].Record.Seq {
			t.Errorf("seq %d follows %d", page.Rows[i].Record.Seq, page.Rows[i-1].Record.Seq)
		}
	}
	wantIDs(t, "rows after the first", w.fetch(core.FetchRequest{Part: part, After: page.Rows[0].Record.Seq}).Rows, "a", "b")
	wantIDs(t, "rows after the last", w.fetch(core.FetchRequest{Part: part, After: page.Rows[2].Record.Seq}).Rows)
}

// Numbers sorted as text, https://github.com/MartinKalema/horizontal-scaling-convex/issues/240, and rows in the order of
// where an update put them, https://github.com/constructorfabric/gears-rust/issues/3738
func fetchOrderRewritten(t *testing.T, h Harness) {
	var all []string
	for i := range 120 {
		all = append(all, fmt.Sprint("row", i))
	}
	_, w := start(t, h, keyed("k", all...)...)
	rows := w.pending()
	part := rows["row0"].part
	for _, i := range []int{99, 10, 9, 100, 1, 50, 0} {
		w.settle(rows[all[i]], core.Settlement{State: core.Pending, Attempts: 1, Failure: &core.Failure{Code: "x"}})
	}
	wantIDs(t, "rows", w.fetch(core.FetchRequest{Part: part}).Rows, all...)
	var paged []string
	for after := int64(0); ; {
		page := w.fetch(core.FetchRequest{Part: part, After: after, Limit: 7})
		paged = append(paged, ids(page.Rows)...)
		if !page.More {
			break
		}
		after = page.Rows[len(page.Rows)-1].Record.Seq
	}
	if !slices.Equal(paged, all) {
		t.Errorf("page by page: got %q", paged)
	}
}

func fetchExclude(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	table.Insert(t, keyed("k", "k1", "k2")...)
	table.Insert(t, keyed("l", "l1")...)
	table.Insert(t, Row{ID: "none", Payload: []byte("x")}, Row{ID: "empty", Keyed: true, Payload: []byte("x")})
	w := join(t, table, "one")
	rows := w.pending()
	var got []string
	for part := range w.partitions() {
		page := w.fetch(core.FetchRequest{Part: part, Known: []int64{rows["k1"].Record.Seq}, Exclude: []string{"l", "other"}})
		got = append(got, ids(page.Rows)...)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"empty", "k2", "none"}) {
		t.Errorf("got %q", got)
	}
	got = nil
	for part := range w.partitions() {
		got = append(got, ids(w.fetch(core.FetchRequest{Part: part, Exclude: []string{"k", "l", ""}}).Rows)...)
	}
	if !slices.Equal(got, []string{"none"}) {
		t.Errorf("with every key excluded: got %q", got)
	}
}

// A head of rows that must wait would hide all others: https://github.com/MarcosRabadan/Agendia/issues/260,
// https://github.com/timgit/pg-boss/commit/001a58d787b604e00bfcac0c043f0abd6c96604f
func fetchExcludedFirst(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	for i := range 300 {
		table.Insert(t, keyed("busy", fmt.Sprint("busy", i))...)
	}
	table.Insert(t, Row{ID: "free", Payload: []byte("x")})
	w := join(t, table, "one")
	r := w.row("free")
	page := w.fetch(core.FetchRequest{Part: r.part, Exclude: []string{"busy"}, Limit: 10})
	wantIDs(t, "rows", page.Rows, "free")
}

func fetchExcludeOdd(t *testing.T, h Harness) {
	keys := []string{`quote"'\`, "emoji 😀", "comma,", " space ", "Case", "case", "%_", "é", "e\u0301", "line\nline"}
	if h.AnyText {
		keys = append(keys, "nul\x00nul", "\xff\xfe")
	}
	table := h.New(t, Options{})
	for _, key := range keys {
		table.Insert(t, keyed(key, "of "+key)...)
	}
	w := join(t, table, "one")
	for _, key := range keys {
		got := map[string]bool{}
		for part := range w.partitions() {
			for _, r := range w.fetch(core.FetchRequest{Part: part, Exclude: []string{key}}).Rows {
				got[r.Record.Key] = true
			}
		}
		if got[key] || len(got) != len(keys)-1 {
			t.Errorf("with %q excluded got %v", key, got)
		}
	}
}

func fetchLimit(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b", "c")...)
	part := w.row("a").part
	for limit, more := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
		page := w.fetch(core.FetchRequest{Part: part, Limit: limit})
		wantIDs(t, fmt.Sprint("rows with limit ", limit), page.Rows, []string{"a", "b", "c"}[:min(limit, 3)]...)
		want(t, fmt.Sprint("More with limit ", limit), page.More, more)
	}
}

func fetchBytes(t *testing.T, h Harness) {
	rows := keyed("k", "a", "b", "c")
	for i := range rows {
		rows[i].Payload = make([]byte, 10_000)
	}
	_, w := start(t, h, rows...)
	part := w.row("a").part
	for bytes, n := range map[int64]int{0: 3, 1: 1, 9_999: 1, 10_500: 2, 25_000: 3, 1 << 30: 3} {
		page := w.fetch(core.FetchRequest{Part: part, MaxBytes: bytes})
		wantIDs(t, fmt.Sprint("rows with MaxBytes ", bytes), page.Rows, []string{"a", "b", "c"}[:n]...)
		want(t, fmt.Sprint("More with MaxBytes ", bytes), page.More, n < 3)
	}
}

func fetchPending(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "published", "dead", "held", "skipped", "retried", "fresh")...)
	w.settle(w.row("published"), core.Settlement{State: core.Published})
	w.kill("dead")
	w.hold("held")
	w.kill("skipped")
	w.must(w.op.Skip(w.ctx, core.Act{ID: "skipped", By: "ops"}))
	w.settle(w.row("retried"), core.Settlement{State: core.Pending, Attempts: 1, Failure: &core.Failure{Code: "x"}})
	wantIDs(t, "rows", w.fetch(core.FetchRequest{Part: w.row("fresh").part}).Rows, "retried", "fresh")
}

func fetchNotDue(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b")...)
	w.settle(w.row("a"), core.Settlement{State: core.Pending, Attempts: 1, Delay: time.Hour, Failure: &core.Failure{Code: "x"}})
	page := w.fetch(core.FetchRequest{Part: w.row("b").part})
	wantIDs(t, "rows", page.Rows, "a", "b")
	want(t, "a waits", page.Rows[0].Wait > 0, true)
	want(t, "b waits", page.Rows[1].Wait > 0, false)
}

// One predicate for due: https://github.com/namastack/namastack-outbox/issues/233
func fetchDue(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a")...)
	w.settle(w.row("a"), core.Settlement{State: core.Pending, Attempts: 1, Delay: 50 * time.Millisecond, Failure: &core.Failure{Code: "x"}})
	w.until("the row to be due", func() bool {
		before, err := w.op.Lag(w.ctx)
		w.must(err)
		due := w.row("a").Wait <= 0
		after, err := w.op.Lag(w.ctx)
		w.must(err)
		if before.Due > 0 && !due || due && after.Due == 0 {
			t.Errorf("due by Fetch: %v, by Lag before: %d, after: %d", due, before.Due, after.Due)
		}
		return due
	})
}

func fetchNoPartition(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a")...)
	want(t, "rows", len(w.fetch(core.FetchRequest{Part: w.partitions()}).Rows), 0)
	blocks, err := w.src.Blocking(w.ctx, w.partitions(), true)
	w.must(err)
	want(t, "blocks", len(blocks), 0)
}

func fetchPartition(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	for i := range 40 {
		table.Insert(t, keyed(fmt.Sprint("key", i%8), fmt.Sprint("row", i))...)
		table.Insert(t, Row{ID: fmt.Sprint("none", i), Payload: []byte("x")})
	}
	w := join(t, table, "one")
	rows := w.pending()
	want(t, "rows", len(rows), 80)
	parts := map[string]int{}
	for _, r := range rows {
		if part, seen := parts[r.Record.Key]; seen && r.Record.Keyed && part != r.part {
			t.Errorf("key %q is in partitions %d and %d", r.Record.Key, part, r.part)
		}
		parts[r.Record.Key] = r.part
	}
}

func fetchReads(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	table.Insert(t, keyed("k", "a")...)
	w := join(t, table, "nobody")
	before, _ := w.show("a")
	for range 3 {
		w.row("a")
	}
	after, _ := w.show("a")
	want(t, "deliveries", after.Deliveries, before.Deliveries)
	want(t, "state", after.State, core.Pending)
}

func blocking(t *testing.T, h Harness) {
	_, w := start(t, h, append(append(keyed("k", "k1", "k2", "k3"), keyed("l", "l1", "l2")...), Row{ID: "none", Payload: []byte("x")}, Row{ID: "pending", Key: "m", Keyed: true})...)
	rows := w.pending()
	w.hold("k2")
	w.hold("k3")
	w.kill("k1")
	w.kill("l2")
	w.kill("none")
	for _, dead := range []bool{false, true} {
		got := map[string]int64{}
		for part := range w.partitions() {
			blocks, err := w.src.Blocking(w.ctx, part, dead)
			w.must(err)
			for _, b := range blocks {
				got[b.Key] = b.Seq
				want(t, "partition of "+b.Key, part, rows[b.Key+"1"].part)
			}
		}
		wanted := map[string]int64{"k": rows["k2"].Record.Seq}
		if dead {
			wanted = map[string]int64{"k": rows["k1"].Record.Seq, "l": rows["l2"].Record.Seq}
		}
		if fmt.Sprint(got) != fmt.Sprint(wanted) {
			t.Errorf("with dead %v: got %v, want %v", dead, got, wanted)
		}
	}
}

func fetchChanges(t *testing.T, h Harness) {
	_, w := start(t, h, keyed("k", "a", "b", "c")...)
	part := w.row("a").part
	w.kill("a")
	w.kill("b")
	w.must(w.op.Retry(w.ctx, core.Act{ID: "a", By: "ops"}))
	first := w.beat("{}", long).Changes
	page := w.fetch(core.FetchRequest{Part: part})
	wantIDs(t, "rows", page.Rows, "a", "c")
	want(t, "changes", page.Changes, first)
	w.must(w.op.Retry(w.ctx, core.Act{ID: "b", By: "ops"}))
	page = w.fetch(core.FetchRequest{Part: part, After: w.row("a").Record.Seq})
	wantIDs(t, "rows", page.Rows, "b", "c")
	want(t, "changes", page.Changes, first+1)
}
