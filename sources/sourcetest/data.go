package sourcetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var dataTests = []test{
	{"payloads come byte for byte", dataPayloads},
	{"a payload of 20 MB comes byte for byte", dataLarge},
	{"each record owns its payload", dataPrivate},
	{"id, key, route, type and headers come as they are", dataFields},
	{"NULL columns are empty, an empty key is a key", dataNulls},
	{"broken headers make that row invalid and no other", dataBrokenHeaders},
	{"text that is no UTF-8 makes that row invalid and no other", dataBrokenText},
	{"an invalid row can be buried and shown", dataBury},
	{"seqs above 2^31 and 2^53 are exact", dataSeqs},
	{"CreatedAt is UTC whatever the process's zone", dataCreated},
}

// payloads are bytes that some layer somewhere spoils.
func payloads() map[string][]byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	random := make([]byte, 1<<20)
	source := rand.NewChaCha8([32]byte{1})
	source.Read(random)
	return map[string][]byte{
		"empty": {}, "nul": {0}, "nul inside": []byte("a\x00b\x00"), "every byte": all, "not UTF-8": []byte("\xff\xfe\xc3("),
		"number": []byte("0012.50"), "time": []byte("2026-03-29 01:30:00"), "bool": []byte("true"),
		"emoji":        []byte("😀 e\u0301 漢字"),
		"json":         []byte(`{"b": 1, "a":1.0 , "a": "\u0000" }` + "\r\n"),
		"quotes":       []byte(`'"\$1 ?1 :x @y`),
		"one mebibyte": random,
	}
}

func dataPayloads(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	for name, payload := range payloads() {
		table.Insert(t, Row{ID: name, Payload: payload})
	}
	w := join(t, table, "one")
	rows := w.pending()
	for name, payload := range payloads() {
		r := rows[name]
		if !bytes.Equal(r.Record.Payload, payload) {
			t.Errorf("payload %s came as %.60q, %d bytes of %d", name, r.Record.Payload, len(r.Record.Payload), len(payload))
		}
		want(t, "invalid", r.Invalid, "")
		info, _ := w.show(name)
		if !bytes.Equal(info.Payload, payload) || info.Size != int64(len(payload)) {
			t.Errorf("payload %s is shown as %.60q, size %d of %d", name, info.Payload, info.Size, len(payload))
		}
	}
}

func dataLarge(t *testing.T, h Harness) {
	payload := make([]byte, 20<<20)
	rand.NewChaCha8([32]byte{2}).Read(payload)
	_, w := start(t, h, Row{ID: "large", Payload: payload})
	r := w.row("large")
	if !bytes.Equal(r.Record.Payload, payload) {
		t.Errorf("%d bytes came of %d, or others", len(r.Record.Payload), len(payload))
	}
	w.settle(r, core.Settlement{State: core.Published})
}

func dataPrivate(t *testing.T, h Harness) {
	rows := keyed("k", "a", "b", "c")
	for i := range rows {
		rows[i].Payload = bytes.Repeat([]byte{byte('a' + i)}, 100)
	}
	_, w := start(t, h, rows...)
	page := w.fetch(core.FetchRequest{Part: w.row("a").part})
	w.fetch(core.FetchRequest{Part: w.row("a").part})
	for i, r := range page.Rows {
		if !bytes.Equal(r.Record.Payload, rows[i].Payload) {
			t.Errorf("the payload of %s has become %q", r.Record.ID, r.Record.Payload)
		}
	}
}

func dataFields(t *testing.T, h Harness) {
	odd := `emoji 😀 "quotes" 'single' \ %s {x} é` + " e\u0301"
	headers := `{"z":"1","a":"é \"q\" \\ ` + "😀" + `","n":1.50,"b":false,"o":{"k": [1,2]},"none":null,"z":"again"}`
	_, w := start(t, h,
		Row{ID: "id " + odd, Key: "key " + odd, Keyed: true, Route: "route " + odd, Type: "type " + odd, Payload: []byte("x"), Headers: headers},
		Row{ID: strings.Repeat("i", 200), Key: strings.Repeat("k", 200), Keyed: true, Payload: []byte("x")})
	r := w.row("id " + odd).Record
	want(t, "key", r.Key, "key "+odd)
	want(t, "route", r.Route, "route "+odd)
	want(t, "type", r.Type, "type "+odd)
	wanted, err := core.ParseHeaders([]byte(headers))
	w.must(err)
	if !slices.Equal(r.Headers, wanted) {
		// A database that stores JSON as a value may change its order and spacing, not what it says.
		for _, header := range wanted {
			if !slices.ContainsFunc(r.Headers, func(h core.Header) bool { return h.Name == header.Name }) {
				t.Errorf("headers %q lack %q", r.Headers, header)
			}
		}
		if h.AnyHeaders {
			t.Errorf("headers: got %q, want %q", r.Headers, wanted)
		}
	}
	long := w.row(strings.Repeat("i", 200)).Record
	want(t, "long key", long.Key, strings.Repeat("k", 200))
	info, _ := w.show("id " + odd)
	want(t, "key shown", info.Key, "key "+odd)
	want(t, "route shown", info.Route, "route "+odd)
	want(t, "type shown", info.Type, "type "+odd)
	if h.AnyHeaders {
		want(t, "headers shown", info.Headers, headers)
	}
}

func dataNulls(t *testing.T, h Harness) {
	_, w := start(t, h, Row{ID: "null"}, Row{ID: "empty", Keyed: true})
	r := w.row("null")
	want(t, "invalid", r.Invalid, "")
	want(t, "keyed", r.Record.Keyed, false)
	want(t, "route", r.Record.Route, "")
	want(t, "type", r.Record.Type, "")
	want(t, "headers", len(r.Record.Headers), 0)
	want(t, "payload bytes", len(r.Record.Payload), 0)
	want(t, "an empty key is a key", w.row("empty").Record.Keyed, true)
	info, _ := w.show("null")
	want(t, "keyed when shown", info.Keyed, false)
}

// One bad row costs that row only: https://github.com/JasperFx/wolverine/commit/b031f8a38be5b101c7c682a7dd12f1e3637bb67d
func dataBrokenHeaders(t *testing.T, h Harness) {
	broken := []string{`[1]`, `"text"`, `1`}
	if h.AnyHeaders {
		broken = append(broken, `{`, `no json`, `{"a":1} {}`)
	}
	if h.AnyHeaders && h.AnyText {
		broken = append(broken, "{\"a\":\"\xff\"}")
	}
	rows := []Row{{ID: "before", Payload: []byte("x"), Headers: `{}`}}
	for i, text := range broken {
		rows = append(rows, Row{ID: fmt.Sprint("broken", i), Key: "k", Keyed: true, Payload: []byte("x"), Headers: text})
	}
	_, w := start(t, h, append(rows, Row{ID: "after", Payload: []byte("x"), Headers: `{"a":"b"}`})...)
	got := w.pending()
	want(t, "rows", len(got), len(broken)+2)
	for id, r := range got {
		bad := strings.HasPrefix(id, "broken")
		if (r.Invalid != "") != bad {
			t.Errorf("row %s is invalid: %q", id, r.Invalid)
		}
		if bad && r.Record.Key != "k" {
			t.Errorf("the key of row %s came as %q", id, r.Record.Key)
		}
	}
}

func dataBrokenText(t *testing.T, h Harness) {
	if !h.AnyText {
		t.Log("not tested: the database stores UTF-8 only")
		return
	}
	_, w := start(t, h,
		Row{ID: "good", Payload: []byte("x")},
		Row{ID: "bad\xffid", Payload: []byte("x")},
		Row{ID: "bad key", Key: "\xc3(", Keyed: true, Payload: []byte("x")},
		Row{ID: "bad route", Route: "\xff", Payload: []byte("x")},
		Row{ID: "bad type", Type: "\xff", Payload: []byte("x")},
		Row{ID: "nul\x00id", Key: "nul\x00key", Keyed: true, Payload: []byte("x")},
	)
	rows := w.pending()
	want(t, "rows", len(rows), 6)
	for id, r := range rows {
		if (r.Invalid != "") != strings.HasPrefix(id, "bad") {
			t.Errorf("row %q is invalid: %q", id, r.Invalid)
		}
	}
	want(t, "key with NUL", rows["nul\x00id"].Record.Key, "nul\x00key")
	for _, id := range []string{"bad\xffid", "nul\x00id"} {
		info, _ := w.show(id)
		want(t, "id shown", info.ID, id)
	}
}

func dataBury(t *testing.T, h Harness) {
	_, w := start(t, h, Row{ID: "broken", Key: "k", Keyed: true, Payload: []byte("x"), Headers: `[]`}, Row{ID: "good", Payload: []byte("x")})
	r := w.row("broken")
	w.settle(r, core.Settlement{State: core.Dead, Failure: &core.Failure{Code: core.ReasonInvalid, Message: r.Invalid, Unsent: true}})
	info, history := w.show("broken")
	want(t, "state", info.State, core.Dead)
	if len(history) != 1 || history[0].Deliveries != 0 {
		t.Errorf("history of a row that was not sent: %+v", history)
	}
	want(t, "refusals shown", info.Refused, 1)
	w.must(w.op.Retry(w.ctx, core.Act{ID: "broken", By: "ops"}))
	w.settle(w.row("broken"), core.Settlement{State: core.Dead, Failure: &core.Failure{Code: core.ReasonTooLarge, Unsent: true}})
	w.must(w.op.Retry(w.ctx, core.Act{ID: "broken", By: "ops"}))
	w.settle(w.row("broken"), core.Settlement{State: core.Pending, Failure: &core.Failure{Code: core.ReasonInvalid, Message: "says the sink"}})
	list, err := w.op.List(w.ctx, core.Filter{})
	w.must(err)
	want(t, "rows listed", len(list), 2)
	for _, r := range list {
		if broken := r.ID == "broken"; broken && (r.Deliveries != 3 || r.Refused != 2) || !broken && r.Refused != 0 {
			t.Errorf("row %s is listed with %d deliveries, %d of them refused", r.ID, r.Deliveries, r.Refused)
		}
	}
}

// Numbers that do not fit: https://github.com/sequinstream/sequin/commit/7a9b8a41155983e475485c38944309efaa5c1a3f
func dataSeqs(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	if table.NextSeq == nil {
		t.Log("not tested: the harness cannot choose a seq")
		return
	}
	w := join(t, table, "one")
	w.acquireAll()
	for _, seq := range []int64{1<<31 + 1, 1<<53 + 1, 1<<53 + 2, 1<<62 + 1} {
		id := fmt.Sprint(seq)
		table.NextSeq(t, seq)
		table.Insert(t, keyed("k", id)...)
		r := w.row(id)
		want(t, "seq", r.Record.Seq, seq)
		page := w.fetch(core.FetchRequest{Part: r.part, After: seq - 1, Known: []int64{seq - 2}})
		wantIDs(t, "rows after the one before", page.Rows, id)
		wantIDs(t, "rows when it is known", w.fetch(core.FetchRequest{Part: r.part, After: seq - 1, Known: []int64{seq}}).Rows)
		w.announce(seq, r)
		w.expire()
		w.leases = nil
		want(t, "recovered", w.takeOver(false)[seq].Crashes, 1)
		w.settle(w.row(id), core.Settlement{State: core.Published})
		info, _ := w.show(id)
		want(t, "state", info.State, core.Published)
		want(t, "seq shown", info.Seq, seq)
	}
}

// Abroad gives the process a zone of its own, in which hours are missing and come twice, and which is never UTC. A source's
// TestMain calls it, before anything runs that looks at the clock.
func Abroad() {
	zone, err := time.LoadLocation("America/St_Johns")
	if err != nil {
		panic(err) // without its zones nothing could be shown
	}
	time.Local = zone
}

// Local time and the missing hour: https://github.com/kagkarlsson/db-scheduler/issues/803
func dataCreated(t *testing.T, h Harness) {
	if _, offset := time.Now().Zone(); offset == 0 {
		t.Fatal("the process is in UTC, where every time is right: TestMain must call sourcetest.Abroad")
	}
	_, w := start(t, h, keyed("k", "a")...)
	r := w.row("a").Record
	if age := time.Since(r.CreatedAt); age < -patience || age > patience || r.CreatedAt.Location() != time.UTC {
		t.Errorf("created at %v, %v ago", r.CreatedAt, age)
	}
	w.settle(w.row("a"), core.Settlement{State: core.Pending, Attempts: 1, Delay: time.Hour, Failure: &core.Failure{Code: "x"}})
	if wait := w.row("a").Wait; wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("waits %v of an hour", wait)
	}
	info, history := w.show("a")
	if info.CreatedAt.Location() != time.UTC || info.AvailableAt.Location() != time.UTC || history[0].At.Location() != time.UTC {
		t.Errorf("shown in another zone than UTC: %v, %v, %v", info.CreatedAt, info.AvailableAt, history[0].At)
	}
}
