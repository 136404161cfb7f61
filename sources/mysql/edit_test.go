package mysql_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

func TestEditedPayloadsOfEveryType(t *testing.T) {
	const old = `{"a": 1}`
	onServers(t, func(t *testing.T, srv server) {
		for kind, c := range map[string]struct {
			now     string
			refused []string
		}{
			"text CHARACTER SET utf8mb4":                               {"é😀 \x01", []string{"\xff", "é\xc3"}},
			"text CHARACTER SET latin1":                                {"é", []string{"😀", "\xff"}},
			"varchar(8) CHARACTER SET utf8mb4":                         {"1234567é", []string{"123456789", "\xff"}},
			"varchar(8) CHARACTER SET utf8mb4 CHECK (payload <> 'no')": {"yes", []string{"no"}},
			"json":         {`{"a": 2}`, []string{`{"b": `, "", "\"\xff\""}},
			"longblob":     {"\x00\xff'\\", nil},
			"varbinary(8)": {"\x00\xff'\\", []string{"123456789"}},
			"tinyblob":     {"", []string{strings.Repeat("x", 256)}},
		} {
			for mode, options := range map[string]string{"": "interpolateParams=true", " prepared": "interpolateParams=false"} {
				t.Run(kind+mode, func(t *testing.T) {
					cfg := srv.config(t)
					srv.execute(t, cfg, `CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload `+kind+`, headers text CHARACTER SET latin1) ENGINE=InnoDB`)
					initialise(t, cfg, mysql.InitOptions{Partitions: 1})
					srv.execute(t, cfg, `INSERT INTO outbox (id, payload, state) VALUES ('a', '`+old+`', 'dead')`)
					cfg.DSN = withOptions(cfg.DSN, options)
					src := source(t, cfg)
					before, _, err := src.Show(t.Context(), "a")
					must(t, err)
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
					headers, odd := `{"h": "é"}`, `{"h": "😀"}`
					for _, payload := range c.refused {
						refuse("payload", core.Edit{Payload: []byte(payload), Headers: &headers})
					}
					refuse("headers", core.Edit{Payload: []byte(c.now), Headers: &odd})
					if list, err := src.Revisions(t.Context(), "a"); err != nil || len(list) != 0 {
						t.Errorf("revisions of a row that was not changed: %+v, %v", list, err)
					}
					must(t, src.Edit(t.Context(), core.Act{ID: "a", By: "ops"}, core.Edit{Payload: []byte(c.now), Headers: &headers}))
					after, _, err := src.Show(t.Context(), "a")
					if err != nil || string(after.Payload) != c.now || after.Headers != headers || after.State != core.Pending {
						t.Errorf("%q, want %q; %+v, %v", after.Payload, c.now, after, err)
					}
					if list, err := src.Revisions(t.Context(), "a"); err != nil || len(list) != 1 || string(list[0].Payload) != string(before.Payload) || list[0].Headers != "" {
						t.Errorf("revisions: %+v, %v", list, err)
					}
				})
			}
		}
	})
}

// Without its table there are no revisions, so nothing is edited; nothing else minds.
func TestAnEditWithoutTheTableOfRevisionsSaysInit(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{Partitions: 1})
		srv.execute(t, cfg, `INSERT INTO outbox (id, payload, state) VALUES ('a', 'x', 'dead'), ('b', 'x', 'dead')`)
		src := source(t, cfg)
		srv.execute(t, cfg, `DROP TABLE connectd_revision`)
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
		if _, err := mysql.Open(t.Context(), cfg); !errors.Is(err, core.ErrNotInitialised) || !strings.Contains(err.Error(), "connectd_revision") {
			t.Errorf("open: %v", err)
		}
		initialise(t, cfg, mysql.InitOptions{Partitions: 1})
		if _, err := src.Revisions(t.Context(), "a"); err != nil {
			t.Errorf("after init: %v", err)
		}
	})
}

// A dead row is edited while a daemon holds the lease: it comes with its new content, its old id and its mark.
func TestAnEditedRowIsDeliveredByWhoHoldsTheLease(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{Partitions: 2})
		sink := memory.NewSink()
		sink.Decide(func(r core.Record) core.Outcome {
			if string(r.Payload) == "bad" {
				return core.Outcome{Kind: core.Permanent, Code: "http_422", Message: "no"}
			}
			return core.Outcome{Kind: core.Delivered}
		})
		ctx, cancel := context.WithCancel(t.Context())
		c := connector(source(t, cfg), sink)
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
		srv.execute(t, cfg, `INSERT INTO outbox (id, aggregateid, payload) VALUES ('a', 'k', 'bad'), ('b', 'k', 'good')`)
		person := source(t, cfg)
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
	})
}
