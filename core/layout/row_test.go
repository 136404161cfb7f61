package layout_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

func text(s string) layout.Text { return layout.Text{String: s, Valid: true} }

func values() layout.Values {
	v := layout.NewValues([]layout.HeaderColumn{{"tenant", "tenant_id"}, {"trace", "t"}})
	v.Seq, v.ID, v.Key, v.Route, v.Type = 7, text("a"), text("k"), text("r"), text("t")
	v.Payload, v.Created = []byte("x"), time.Unix(1, 0)
	return v
}

func TestRow(t *testing.T) {
	v := values()
	v.Headers = text(`{"own": "1", "n": 2}`)
	v.Extra[0] = text("t-1")
	v.Deliveries, v.Attempts, v.Crashes, v.Wait, v.Failing = 3, 2, 1, time.Second, time.Minute
	var row core.Row
	v.Row(&row)
	want := core.Row{
		Record: core.Record{ID: "a", Key: "k", Keyed: true, Route: "r", Type: "t", Payload: []byte("x"), CreatedAt: time.Unix(1, 0), Seq: 7,
			Headers: []core.Header{{Name: "own", Value: "1"}, {Name: "n", Value: "2"}, {Name: "tenant", Value: "t-1"}}},
		Deliveries: 3, Attempts: 2, Crashes: 1, Wait: time.Second, Failing: time.Minute,
	}
	if !reflect.DeepEqual(row, want) {
		t.Errorf("got %+v, want %+v", row, want)
	}
	// Nothing is left of the row before.
	v = values()
	v.Key, v.Failing = layout.Text{}, time.Minute
	v.Row(&row)
	if row.Record.Keyed || row.Record.Key != "" || row.Record.Headers != nil || row.Deliveries != 0 || row.Failing != 0 || row.Invalid != "" {
		t.Errorf("%+v", row)
	}
	// A failure that is counted has a time, though the clock went back or the column was emptied.
	v.Attempts, v.Failing = 1, -time.Second
	if v.Row(&row); row.Failing != time.Microsecond {
		t.Errorf("failing for %v", row.Failing)
	}
}

func TestInvalidRows(t *testing.T) {
	broken := text("a\xffb")
	for want, spoil := range map[string]func(v *layout.Values){
		"id is NULL":                    func(v *layout.Values) { v.ID = layout.Text{} },
		"id is not UTF-8":               func(v *layout.Values) { v.ID = broken },
		"key is not UTF-8":              func(v *layout.Values) { v.Key = broken },
		"route is not UTF-8":            func(v *layout.Values) { v.Route = broken },
		"type is not UTF-8":             func(v *layout.Values) { v.Type = broken },
		"header trace is not UTF-8":     func(v *layout.Values) { v.Extra[1] = broken },
		"headers are not UTF-8":         func(v *layout.Values) { v.Headers = text("{\"a\": \"\xff\"}") },
		"headers are not JSON":          func(v *layout.Values) { v.Headers = text(`{"a`) },
		"headers are not a JSON object": func(v *layout.Values) { v.Headers = text(`[]`) },
		"": func(v *layout.Values) {
			v.Key, v.Route, v.Type, v.Payload = text(""), layout.Text{}, layout.Text{}, []byte("\xff")
		},
	} {
		v := values()
		spoil(&v)
		var row core.Row
		if v.Row(&row); row.Invalid != want {
			t.Errorf("got %q, want %q", row.Invalid, want)
		}
		if row.Record.ID != v.ID.String || row.Record.Seq != 7 {
			t.Errorf("%s: what could be read is not there: %+v", want, row.Record)
		}
	}
}

func TestARowWithoutHeadersCostsNothing(t *testing.T) {
	v := values()
	var row core.Row
	if n := testing.AllocsPerRun(100, func() { v.Row(&row) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTextIsScanned(t *testing.T) {
	buffer := []byte("bytes")
	for _, c := range []struct {
		value any
		want  layout.Text
	}{{"text", text("text")}, {buffer, text("bytes")}, {"", text("")}, {nil, layout.Text{}}} {
		got := text("before")
		if err := got.Scan(c.value); err != nil || got != c.want {
			t.Errorf("%v: %+v, %v", c.value, got, err)
		}
	}
	var got layout.Text
	if err := got.Scan(buffer); err != nil {
		t.Fatal(err)
	}
	if buffer[0] = 'x'; got.String != "bytes" {
		t.Error("the text is the driver's buffer")
	}
	if err := got.Scan(1.5); err == nil || err.Error() != "text comes as float64" {
		t.Errorf("a number: %v", err)
	}
}

func TestDuration(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	for _, c := range []struct {
		n    int64
		unit time.Duration
		want time.Duration
	}{
		{1500, time.Millisecond, 1500 * time.Millisecond}, {-1500, time.Microsecond, -1500 * time.Microsecond}, {0, time.Second, 0},
		{1<<63 - 1, time.Microsecond, century}, {-1 << 63, time.Microsecond, -century}, {1 << 60, time.Millisecond, century}, {-1 << 60, time.Millisecond, -century},
	} {
		if got := layout.Duration(c.n, c.unit); got != c.want {
			t.Errorf("%d of %v: %v, want %v", c.n, c.unit, got, c.want)
		}
	}
}

func TestTimes(t *testing.T) {
	want := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	for _, n := range []int64{want.Unix(), want.UnixMilli(), want.UnixMicro()} {
		if got := layout.SinceEpoch(n); got != want {
			t.Errorf("%d: %v", n, got)
		}
	}
	for n, want := range map[int64]time.Time{1e11: time.Unix(1e11, 0), 1e11 + 1: time.UnixMilli(1e11 + 1), 1e14: time.UnixMilli(1e14), 1e14 + 1: time.UnixMicro(1e14 + 1), -1: time.Unix(-1, 0)} {
		if got := layout.SinceEpoch(n); !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%d: %v", n, got)
		}
	}
	for _, s := range []string{"2026-03-29 01:30:00", "2026-03-29 01:30:00.000", "2026-03-29T01:30:00Z", "2026-03-29T03:30:00+02:00", "2026-03-29T01:30:00", "2026-03-29 02:30:00+01:00", "2026-03-29 01:30"} {
		if got := layout.ParseTime(s); got != want {
			t.Errorf("%s: %v", s, got)
		}
	}
	if got := layout.ParseTime("2026-03-29"); got != want.Truncate(24*time.Hour) {
		t.Errorf("a day: %v", got)
	}
	if !layout.SinceEpoch(0).IsZero() || !layout.ParseTime("soon").IsZero() || !layout.ParseTime("").IsZero() {
		t.Error("what is no time is one")
	}
}
