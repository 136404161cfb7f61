package layout_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/connectd/connectd/core/layout"
)

var errName = errors.New("no name")

func checkName(name string) error {
	if name == "" || strings.Contains(name, "!") {
		return errName
	}
	return nil
}

var (
	strict = layout.Dialect{CheckName: checkName}
	loose  = layout.Dialect{CheckName: checkName, IgnoreCase: true}
	single = layout.Dialect{CheckName: checkName, OnePartition: true}
)

// names maps pairs of names; "NULL" is nil.
func names(pairs ...string) layout.Mapping {
	m := layout.Mapping{}
	for i := 0; i < len(pairs); i += 2 {
		if m[pairs[i]] = &pairs[i+1]; pairs[i+1] == "NULL" {
			m[pairs[i]] = nil
		}
	}
	return m
}

func TestDefaultNames(t *testing.T) {
	want := layout.Columns{
		ID: "id", Key: "aggregateid", Route: "aggregatetype", Type: "type", Payload: "payload", Headers: "headers", Order: "seq", Created: "created_at",
		State: "state", AvailableAt: "available_at", Attempts: "attempts", Deliveries: "deliveries", Crashes: "crashes", LastError: "last_error",
		FailingSince: "failing_since", PublishedAt: "published_at", Partition: "part",
	}
	for _, m := range []layout.Mapping{nil, {}, names("id", "", "key", "", "partition", "")} {
		if got, err := m.Resolve(nil, strict); err != nil || got != want {
			t.Errorf("%v: %+v, %v", m, got, err)
		}
	}
	want.Partition = ""
	if got, err := layout.Mapping(nil).Resolve(nil, single); err != nil || got != want {
		t.Errorf("with one partition: %+v, %v", got, err)
	}
}

func TestMappedNames(t *testing.T) {
	m := names("id", "a", "key", "b", "route", "NULL", "type", "NULL", "headers", "NULL", "created", "NULL", "order", "a", "state", "C", "partition", "c")
	got, err := m.Resolve(nil, strict)
	want := layout.Columns{
		ID: "a", Key: "b", Payload: "payload", Order: "a", State: "C", AvailableAt: "available_at", Attempts: "attempts", Deliveries: "deliveries",
		Crashes: "crashes", LastError: "last_error", FailingSince: "failing_since", PublishedAt: "published_at", Partition: "c",
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got.ConfigName("C") != "state" || got.ConfigName("b") != "key" || got.ConfigName("?") != "?" {
		t.Errorf("names in the configuration: %s, %s, %s", got.ConfigName("C"), got.ConfigName("b"), got.ConfigName("?"))
	}
	if all := maps.Collect(got.All()); len(all) != 17 || all["key"] != "b" || all["route"] != "" || all["partition"] != "c" {
		t.Errorf("all: %v", all)
	}
	for column, has := range map[string]bool{"id": true, "route": true, "payload": false, "?": false} {
		if m.Has(column) != has {
			t.Errorf("the mapping has %s: %v", column, !has)
		}
	}
	if names("id", "").Has("id") {
		t.Error("an empty name is a mapping")
	}
}

func TestMappingsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		m       layout.Mapping
		headers []layout.HeaderColumn
		d       layout.Dialect
		want    string
	}{
		{names("nope", "x"), nil, strict, "columns.nope is no column of an outbox table"},
		{names("partition", "x"), nil, single, "columns.partition is no column of an outbox table"},
		{names("key", "a!"), nil, strict, "columns.key: no name"},
		{names("key", "x", "type", "x"), nil, strict, `columns.key and columns.type are both "x"`},
		{names("key", "x", "type", "X"), nil, loose, `columns.key and columns.type are both "X"`},
		{names("key", "Type"), nil, loose, `columns.key and columns.type are both "type"`},
		{names("payload", "x", "order", "x"), nil, strict, `columns.payload and columns.order are both "x"`},
		{nil, []layout.HeaderColumn{{Column: "x"}}, strict, `the header of column "x" has no name`},
		{nil, []layout.HeaderColumn{{Header: "h"}}, strict, "header h: no name"},
	} {
		if _, err := c.m.Resolve(c.headers, c.d); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	nullable := []string{"key", "route", "type", "headers", "created"}
	var all layout.Columns
	for column := range all.All() {
		switch _, err := names(column, "NULL").Resolve(nil, strict); {
		case slices.Contains(nullable, column) && err != nil:
			t.Error(err)
		case !slices.Contains(nullable, column) && (err == nil || err.Error() != "columns."+column+" cannot be null"):
			t.Errorf("%s is null: %v", column, err)
		}
	}
	if _, err := names("key", "x", "type", "X").Resolve(nil, strict); err != nil {
		t.Error(err)
	}
}

func TestRelayTables(t *testing.T) {
	for _, c := range []struct {
		name         string
		strict, fold bool
	}{{"connectd_lease", true, true}, {"connectd_Outbox", false, true}, {"outbox", false, false}, {"connectd_orders", false, false}} {
		if strict.IsRelayTable(c.name) != c.strict || loose.IsRelayTable(c.name) != c.fold {
			t.Errorf("%s: %v, %v", c.name, strict.IsRelayTable(c.name), loose.IsRelayTable(c.name))
		}
	}
}

func TestSettle(t *testing.T) {
	has := func(columns ...string) func(string) (string, bool) {
		return func(name string) (string, bool) {
			i := slices.IndexFunc(columns, func(c string) bool { return strings.EqualFold(c, name) })
			if i < 0 {
				return "", false
			}
			return columns[i], true
		}
	}
	for _, c := range []struct {
		name    string
		m       layout.Mapping
		headers []layout.HeaderColumn
		table   []string
		want    string // the columns id, key, route, type, payload, headers, order, created, and those of headers; or an error
	}{
		{"all there", nil, nil, []string{"ID", "AggregateID", "aggregatetype", "type", "payload", "headers", "created_at"}, "ID AggregateID aggregatetype type payload headers seq created_at"},
		{"without what can be guessed", nil, nil, []string{"id", "aggregateid", "payload"}, "id aggregateid   payload  seq "},
		{"without a key, said", names("key", "NULL"), nil, []string{"id", "payload"}, "id    payload  seq "},
		{"without a key, not said", nil, nil, []string{"id", "payload"}, "no column aggregateid for the key (map columns.key to a name, or to null if there is none)"},
		{"a mapped one is not guessed", names("type", "kind"), nil, []string{"id", "aggregateid", "payload"}, "no column kind for the type (map columns.type to a name, or to null if there is none)"},
		{"several", names("key", "NULL"), []layout.HeaderColumn{{"h", "x"}}, []string{"y"},
			"no column id for the id (map columns.id); no column payload for the payload (map columns.payload); no column x for the header h"},
		{"of headers", nil, []layout.HeaderColumn{{"h", "x"}, {"i", "id"}}, []string{"id", "aggregateid", "payload", "X"}, "id aggregateid   payload  seq  X id"},
	} {
		cols, err := c.m.Resolve(c.headers, loose)
		if err != nil {
			t.Fatal(err)
		}
		err = cols.Settle(c.m, c.headers, has(c.table...))
		got := []string{cols.ID, cols.Key, cols.Route, cols.Type, cols.Payload, cols.Headers, cols.Order, cols.Created}
		for _, h := range c.headers {
			got = append(got, h.Column)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %q, want %q", c.name, strings.Join(got, " "), c.want)
		}
	}
}

func TestHeaderOnlyColumns(t *testing.T) {
	headers := []layout.HeaderColumn{{"a", "x"}, {"b", "ID"}, {"c", "X"}, {"d", "y"}, {"e", "x"}}
	cols, err := layout.Mapping(nil).Resolve(headers, loose)
	if err != nil {
		t.Fatal(err)
	}
	if got := cols.HeaderOnly(headers, loose); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("case ignored: %v", got)
	}
	if got := cols.HeaderOnly(headers, strict); !slices.Equal(got, []string{"x", "ID", "X", "y"}) {
		t.Errorf("case kept: %v", got)
	}
}
