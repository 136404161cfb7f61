package postgres_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sourcetest"
)

func TestEditedPayloadsOfEveryType(t *testing.T) {
	const old = `{"a": 1}`
	for kind, c := range map[string]struct {
		now, shown string
		refused    []string
	}{
		"text":                             {"é😀 \x01", "é😀 \x01", []string{"\xff", "a\x00b"}},
		"varchar(8)":                       {"12345678", "12345678", []string{"123456789", "\xff"}},
		"char(8)":                          {"1234567é", "1234567é", []string{"123456789"}},
		"json":                             {`{"b": 1,  "a":1.50}`, `{"b": 1,  "a":1.50}`, []string{`{"b": `, "", "\"\xff\""}},
		"jsonb":                            {`{"b": 1,  "a":1.50}`, `{"a": 1.50, "b": 1}`, []string{`{"b": `, `"\u0000"`}},
		"bytea":                            {"\x00\xff'\\x41", "\x00\xff'\\x41", nil},
		"text CHECK (length(payload) < 9)": {"", "", []string{"123456789"}},
	} {
		for mode, dsn := range modes {
			t.Run(kind+" "+mode, func(t *testing.T) {
				cfg := postgres.Config{DSN: dsn(t), Table: schemaOf(t) + ".outbox"}
				in(t, cfg, `CREATE TABLE outbox (id text PRIMARY KEY, aggregateid text, payload `+kind+`, headers jsonb)`)
				initialise(t, cfg, postgres.InitOptions{Partitions: 1})
				in(t, cfg, `INSERT INTO outbox (id, payload, state) VALUES ('a', '`+old+`', 'dead')`)
				src := open(t, cfg)
				before, _, err := src.Show(t.Context(), "a")
				if err != nil {
					t.Fatal(err)
				}
				headers := `{"h": "1"}`
				for _, payload := range c.refused {
					var content *core.ContentError
					err := src.Edit(t.Context(), core.Act{ID: "a", By: "ops"}, core.Edit{Payload: []byte(payload), Headers: &headers})
					if !errors.As(err, &content) || !strings.Contains(err.Error(), "column payload") {
						t.Errorf("%q: %v", payload, err)
					}
					after, lines, err := src.Show(t.Context(), "a")
					if err != nil || !reflect.DeepEqual(before, after) || len(lines) != 0 {
						t.Errorf("%q: the row was %+v, is %+v with %d lines of history, %v", payload, before, after, len(lines), err)
					}
				}
				if list, err := src.Revisions(t.Context(), "a"); err != nil || len(list) != 0 {
					t.Errorf("revisions of a row that was not changed: %+v, %v", list, err)
				}
				if err := src.Edit(t.Context(), core.Act{ID: "a", By: "ops"}, core.Edit{Payload: []byte(c.now), Headers: &headers}); err != nil {
					t.Fatal(err)
				}
				after, _, err := src.Show(t.Context(), "a")
				if err != nil || string(after.Payload) != c.shown || after.Headers != headers || after.State != core.Pending {
					t.Errorf("%q, want %q; %+v, %v", after.Payload, c.shown, after, err)
				}
				if list, err := src.Revisions(t.Context(), "a"); err != nil || len(list) != 1 || string(list[0].Payload) != string(before.Payload) || list[0].Headers != "" {
					t.Errorf("revisions: %+v, %v", list, err)
				}
			})
		}
	}
}

// Without its table there are no revisions, so nothing is edited; nothing else minds.
func TestAnEditWithoutTheTableOfRevisionsSaysInit(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{Partitions: 1})
	in(t, cfg, `INSERT INTO outbox (id, payload, state) VALUES ('a', 'x', 'dead'), ('b', 'x', 'dead')`)
	src := open(t, cfg)
	in(t, cfg, `DROP TABLE connectd_revision`)
	before, _, err := src.Show(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Edit(t.Context(), core.Act{ID: "a", By: "ops"}, core.Edit{Payload: []byte("y")}); !errors.Is(err, core.ErrNotInitialised) {
		t.Errorf("edit: %v", err)
	}
	if _, err := src.Revisions(t.Context(), "a"); !errors.Is(err, core.ErrNotInitialised) {
		t.Errorf("revisions: %v", err)
	}
	if after, lines, err := src.Show(t.Context(), "a"); err != nil || !reflect.DeepEqual(before, after) || len(lines) != 0 {
		t.Errorf("the row was %+v, is %+v, %v", before, after, err)
	}
	if err := errors.Join(src.Retry(t.Context(), core.Act{ID: "a", By: "ops"}), src.Skip(t.Context(), core.Act{ID: "b", By: "ops"})); err != nil {
		t.Error(err)
	}
	if page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10, MaxBytes: 1 << 20}); err != nil || len(page.Rows) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	if _, err := postgres.Open(t.Context(), cfg); !errors.Is(err, core.ErrNotInitialised) || !strings.Contains(err.Error(), "connectd_revision") {
		t.Errorf("open: %v", err)
	}
	initialise(t, cfg, postgres.InitOptions{Partitions: 1})
	if _, err := src.Revisions(t.Context(), "a"); err != nil {
		t.Errorf("after init: %v", err)
	}
}

// A dead row is edited while a daemon holds the lease: it comes with its new content, its old id and its mark.
func TestAnEditedRowIsDeliveredByWhoHoldsTheLease(t *testing.T) {
	cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
	initialise(t, cfg, postgres.InitOptions{Partitions: 2})
	sink := memory.NewSink()
	sink.Decide(func(r core.Record) core.Outcome {
		if string(r.Payload) == "bad" {
			return core.Outcome{Kind: core.Permanent, Code: "http_422", Message: "no"}
		}
		return core.Outcome{Kind: core.Delivered}
	})
	stop := run(t, cfg, 1, sink, nil)
	in(t, cfg, `INSERT INTO outbox (id, aggregateid, payload) VALUES ('a', 'k', 'bad'), ('b', 'k', 'good')`)
	person := open(t, cfg)
	state := func(id string, want core.State) {
		t.Helper()
		until(t, id+" to be "+string(want), func() bool {
			info, _, err := person.Show(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return info.State == want
		})
	}
	state("a", core.Dead)
	state("b", core.Published)
	if err := person.Edit(t.Context(), core.Act{ID: "a", By: "ops", Why: "a typo"}, core.Edit{Payload: []byte("mended")}); err != nil {
		t.Fatal(err)
	}
	state("a", core.Published)
	stop()
	got := sink.Delivered()
	if len(got) != 2 || got[1].ID != "a" || string(got[1].Payload) != "mended" || !got[1].PossibleDuplicate() {
		t.Errorf("delivered: %+v", got)
	}
}
