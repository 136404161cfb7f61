package sqlite_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

// A payload stays of the storage class that it had, where it can: applications read it back as text or as a blob.
func TestEditedPayloadsOfEveryType(t *testing.T) {
	for kind, c := range map[string]struct {
		old, now, class string
		refused         []string
		strict          bool
	}{
		"payload":                   {`'x'`, "é😀", "text", nil, false},
		"payload any":               {`x'00ff'`, "é😀", "blob", nil, false},
		"payload TEXT":              {`'x'`, "é😀", "text", []string{"\x00", "\xff"}, false},
		"payload TEXT DEFAULT NULL": {`NULL`, "\x00\xff", "blob", nil, false},
		"payload BLOB":              {`x'00ff'`, "\xff\x00'", "blob", nil, false},
		"payload TEXT NOT NULL":     {`'x'`, "", "text", []string{"\xff"}, true},
		"payload BLOB NOT NULL":     {`x'00'`, "", "blob", nil, true},
		"payload TEXT CHECK (json_valid(payload))": {`'{"a": 1}'`, `{"b": 1,  "a":1.50}`, "text", []string{`{"b": `, "", "\"\xff\""}, false},
		"payload TEXT CHECK (length(payload) < 9)": {`'x'`, "12345678", "text", []string{"123456789"}, false},
	} {
		t.Run(kind, func(t *testing.T) {
			cfg := sqlite.Config{Path: file(t), Table: "outbox"}
			end := ""
			if c.strict {
				end = " STRICT"
			}
			execute(t, cfg.Path, `CREATE TABLE outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, aggregateid TEXT, `+kind+`, headers TEXT CHECK (headers <> '{}'))`+end)
			initialise(t, cfg)
			execute(t, cfg.Path, `INSERT INTO outbox (id, payload, state) VALUES ('a', `+c.old+`, 'dead')`)
			src := open(t, cfg)
			before, _, err := src.Show(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			refuse := func(column string, edit core.Edit) {
				t.Helper()
				var content *core.ContentError
				if err := src.Edit(t.Context(), core.Act{ID: "a", By: "ops"}, edit); !errors.As(err, &content) || !strings.Contains(err.Error(), "column "+column) {
					t.Errorf("%q: %v", edit.Payload, err)
				}
				after, lines, err := src.Show(t.Context(), "a")
				if err != nil || !reflect.DeepEqual(before, after) || len(lines) != 0 {
					t.Errorf("%q: the row was %+v, is %+v with %d lines of history, %v", edit.Payload, before, after, len(lines), err)
				}
			}
			headers, none := `{"h": "1"}`, `{}`
			for _, payload := range c.refused {
				refuse("payload", core.Edit{Payload: []byte(payload), Headers: &headers})
			}
			refuse("headers", core.Edit{Payload: []byte(c.now), Headers: &none})
			if list, err := src.Revisions(t.Context(), "a"); err != nil || len(list) != 0 {
				t.Errorf("revisions of a row that was not changed: %+v, %v", list, err)
			}
			if err := src.Edit(t.Context(), core.Act{ID: "a", By: "ops"}, core.Edit{Payload: []byte(c.now), Headers: &headers}); err != nil {
				t.Fatal(err)
			}
			after, _, err := src.Show(t.Context(), "a")
			if err != nil || string(after.Payload) != c.now || after.Headers != headers || after.State != core.Pending {
				t.Errorf("%q, want %q; %+v, %v", after.Payload, c.now, after, err)
			}
			var class string
			if err := application(t, cfg.Path).QueryRow(`SELECT typeof(payload) FROM outbox`).Scan(&class); err != nil || class != c.class {
				t.Errorf("the payload is a %s, want %s; %v", class, c.class, err)
			}
			if list, err := src.Revisions(t.Context(), "a"); err != nil || len(list) != 1 || string(list[0].Payload) != string(before.Payload) || list[0].Headers != "" {
				t.Errorf("revisions: %+v, %v", list, err)
			}
		})
	}
}

// Without its table there are no revisions, so nothing is edited; nothing else minds.
func TestAnEditWithoutTheTableOfRevisionsSaysInit(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	execute(t, cfg.Path, `INSERT INTO outbox (id, payload, state) VALUES ('a', 'x', 'dead'), ('b', 'x', 'dead')`)
	src := open(t, cfg)
	execute(t, cfg.Path, `DROP TABLE connectd_revision`)
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
	if _, err := sqlite.Open(t.Context(), cfg); !errors.Is(err, core.ErrNotInitialised) || !strings.Contains(err.Error(), "connectd_revision") {
		t.Errorf("open: %v", err)
	}
	initialise(t, cfg)
	if _, err := src.Revisions(t.Context(), "a"); err != nil {
		t.Errorf("after init: %v", err)
	}
}

// A dead row is edited while a daemon holds the lease: it comes with its new content, its old id and its mark.
func TestAnEditedRowIsDeliveredByWhoHoldsTheLease(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox", BusyTimeout: patient}
	initialise(t, cfg)
	sink := memory.NewSink()
	sink.Decide(func(r core.Record) core.Outcome {
		if string(r.Payload) == "bad" {
			return core.Outcome{Kind: core.Permanent, Code: "http_422", Message: "no"}
		}
		return core.Outcome{Kind: core.Delivered}
	})
	ctx, cancel := context.WithCancel(t.Context())
	c := &engine.Connector{
		Name: "c", Source: open(t, cfg), Sink: sink, Policy: engine.DefaultPolicy(), Owner: engine.NewOwner(), Gate: engine.NewGate(), Log: slog.New(slog.DiscardHandler),
	}
	var daemon sync.WaitGroup
	daemon.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() {
		cancel()
		daemon.Wait()
	})
	defer stop()
	execute(t, cfg.Path, `INSERT INTO outbox (id, aggregateid, payload) VALUES ('a', 'k', 'bad'), ('b', 'k', 'good')`)
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
