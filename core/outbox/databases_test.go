package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core/outbox"
	"github.com/connectd/connectd/scripts/services/prepared"
)

func table(t *testing.T, dialect, name string, o outbox.Options) *outbox.Table {
	t.Helper()
	table, err := outbox.New(outbox.Dialect(dialect), name, o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// enqueue runs a transaction of its own.
func enqueue(t *testing.T, db prepared.Database, table *outbox.Table, messages ...outbox.Message) error {
	t.Helper()
	tx, err := db.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := table.Enqueue(t.Context(), tx, messages...); err != nil {
		return err
	}
	return tx.Commit()
}

var everyByte = func() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()

var samples = []outbox.Message{
	{ID: "full", Key: "k\"'`", Route: "r\\", Type: "t?$1", Payload: everyByte, Headers: map[string]string{"b": "<&\"\\ü😀", "a": ""}},
	{ID: "bare"},
	{ID: "empty 😀", Key: "k", Payload: []byte{}},
}

// check compares what is in the table with the samples.
func check(t *testing.T, db prepared.Database) {
	t.Helper()
	for _, m := range samples {
		var key, route, kind, headers sql.NullString
		var payload []byte
		err := db.DB.QueryRowContext(t.Context(), "SELECT aggregateid, aggregatetype, type, headers, payload FROM outbox WHERE state = 'pending' AND id = '"+m.ID+"'").Scan(&key, &route, &kind, &headers, &payload)
		if err != nil {
			t.Fatal(m.ID, err)
		}
		if key.String != m.Key || route.String != m.Route || kind.String != m.Type || key.Valid != (m.Key != "") || route.Valid != (m.Route != "") || kind.Valid != (m.Type != "") {
			t.Errorf("%s: key %v, route %v, type %v", m.ID, key, route, kind)
		}
		if want := `{"a":"","b":"<&\"\\ü😀"}`; headers.Valid != (m.Headers != nil) || headers.Valid && strings.ReplaceAll(strings.ReplaceAll(headers.String, ": ", ":"), ", ", ",") != want {
			t.Errorf("%s: headers %v", m.ID, headers)
		}
		isNull := db.Ask(t, "SELECT count(*) FROM outbox WHERE payload IS NULL AND id = '"+m.ID+"'") == "1"
		if !bytes.Equal(payload, m.Payload) || isNull != (m.Payload == nil) {
			t.Errorf("%s: payload %q, NULL: %v", m.ID, payload, isNull)
		}
		if db.Dialect == "sqlite" && m.Payload != nil && db.Ask(t, "SELECT typeof(payload) FROM outbox WHERE id = '"+m.ID+"'") != "blob" {
			t.Errorf("%s: the payload is no blob", m.ID)
		}
	}
}

func TestEnqueue(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		outbox := table(t, db.Dialect, "outbox", outbox.Options{})
		if err := enqueue(t, db, outbox, samples...); err != nil {
			t.Fatal(err)
		}
		check(t, db)
	})
}

// Several statements are one order, and what the transaction does not commit has not been.
func TestEnqueueMany(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		outboxTable := table(t, db.Dialect, "outbox", outbox.Options{})
		var many []outbox.Message
		for i := range 250 {
			many = append(many, outbox.Message{ID: fmt.Sprintf("m%03d", i), Key: "k", Payload: bytes.Repeat([]byte("x"), max(i-240, 0)*50_000)})
		}
		tx, err := db.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := outboxTable.Enqueue(t.Context(), tx, many[:10]...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := enqueue(t, db, outboxTable, many...); err != nil {
			t.Fatal(err)
		}
		rows, err := db.DB.QueryContext(t.Context(), "SELECT id, length(payload) FROM outbox ORDER BY seq")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		n := 0
		for ; rows.Next(); n++ {
			var id string
			var size int
			if err := rows.Scan(&id, &size); err != nil || id != many[n].ID || size != len(many[n].Payload) {
				t.Fatal(n, id, size, err)
			}
		}
		if err := rows.Err(); err != nil || n != len(many) {
			t.Error(n, err)
		}
	})
}

// An adopted table, with names that need quoting and without the columns that no message needs.
func TestOwnNames(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		q, schema := `"`, map[string]string{"postgres": "public", "sqlite": "main"}[db.Dialect]
		if db.Dialect == "mysql" {
			q, schema = "`", db.Ask(t, "SELECT database()")
		}
		kind := map[string]string{"postgres": "jsonb", "mysql": "json", "sqlite": "TEXT"}[db.Dialect]
		name := func(s string) string { return q + strings.ReplaceAll(s, q, q+q) + q }
		db.Exec(t, "CREATE TABLE "+name("my.`o\"")+" ("+name("Command Id")+" varchar(255) PRIMARY KEY, "+name("select")+" varchar(255), payload "+kind+")")
		own := table(t, db.Dialect, "my.`o\"", outbox.Options{Schema: schema, Payload: outbox.JSON, Columns: outbox.Columns{ID: "Command Id", Key: "select"}})
		if err := enqueue(t, db, own, outbox.Message{ID: "a", Key: "k", Payload: []byte(`{"a":"\\u0000"}`)}, outbox.Message{ID: "b"}); err != nil {
			t.Fatal(err)
		}
		if got := db.Ask(t, "SELECT payload FROM "+name("my.`o\"")+" WHERE "+name("select")+" = 'k'"); strings.ReplaceAll(got, " ", "") != `{"a":"\\u0000"}` {
			t.Error(got)
		}
		if db.Dialect == "sqlite" && db.Ask(t, "SELECT typeof(payload) FROM "+name("my.`o\"")+" WHERE payload IS NOT NULL") != "text" {
			t.Error("the payload is no text")
		}
		err := enqueue(t, db, own, outbox.Message{ID: "c"}, outbox.Message{ID: "b"})
		var twice *outbox.DuplicateError
		if !errors.As(err, &twice) || twice.ID != "b" {
			t.Error(err)
		}
		if err := enqueue(t, db, own, outbox.Message{ID: "d", Type: "t"}); err == nil || errors.Is(err, outbox.ErrDuplicate) {
			t.Error("a column that is not there:", err)
		}
	})
}

func TestDuplicates(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		outboxTable := table(t, db.Dialect, "outbox", outbox.Options{})
		for _, id := range []string{"order-1", "it's \"x\" (1)=(2)", "ünïcode", "漢字", "😀", "a\nb", strings.Repeat("é", 127), strings.Repeat("😀", 63), "x" + strings.Repeat("漢", 84)} {
			if err := enqueue(t, db, outboxTable, outbox.Message{ID: id}); err != nil {
				t.Fatal(err)
			}
			for _, messages := range [][]outbox.Message{{{ID: id}}, {{ID: "new"}, {ID: id}, {ID: "newer"}}} {
				err := enqueue(t, db, outboxTable, messages...)
				var twice *outbox.DuplicateError
				if !errors.As(err, &twice) || twice.ID != id || twice.Err == nil || !errors.Is(err, outbox.ErrDuplicate) {
					t.Errorf("%q of %d: %v", id, len(messages), err)
				}
			}
		}
		if n := db.Ask(t, "SELECT count(*) FROM outbox"); n != "9" {
			t.Errorf("%s rows", n)
		}
	})
}

// The transaction's state after a duplicate is as the documentation says.
func TestAfterADuplicate(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		outboxTable := table(t, db.Dialect, "outbox", outbox.Options{})
		if err := enqueue(t, db, outboxTable, outbox.Message{ID: "a"}); err != nil {
			t.Fatal(err)
		}
		tx, err := db.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if err := outboxTable.Enqueue(t.Context(), tx, outbox.Message{ID: "b"}, outbox.Message{ID: "b"}); !errors.Is(err, outbox.ErrDuplicate) {
			t.Fatal(err)
		}
		if err := outboxTable.Enqueue(t.Context(), tx, outbox.Message{ID: "c"}); err != nil {
			t.Fatal("a duplicate that was found before the database is no end:", err)
		}
		if err := outboxTable.Enqueue(t.Context(), tx, outbox.Message{ID: "a"}); !errors.Is(err, outbox.ErrDuplicate) {
			t.Fatal(err)
		}
		err = outboxTable.Enqueue(t.Context(), tx, outbox.Message{ID: "d"})
		if aborted := db.Dialect == "postgres"; (err != nil) != aborted || errors.Is(err, outbox.ErrDuplicate) {
			t.Errorf("aborted: %v, must be %v", err, aborted)
		}
	})
}

// Another unique constraint's refusal is not taken for the id's.
func TestOtherConstraints(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		db.Exec(t, "CREATE UNIQUE INDEX one_key ON outbox (aggregateid)", "CREATE UNIQUE INDEX one_route ON outbox (id, aggregatetype)")
		outboxTable := table(t, db.Dialect, "outbox", outbox.Options{})
		if err := enqueue(t, db, outboxTable, outbox.Message{ID: "a", Key: "k"}); err != nil {
			t.Fatal(err)
		}
		if err := enqueue(t, db, outboxTable, outbox.Message{ID: "b", Key: "k"}); err == nil || errors.Is(err, outbox.ErrDuplicate) {
			t.Error(err)
		}
		err := enqueue(t, db, outboxTable, outbox.Message{ID: "k", Key: "k"})
		if db.Dialect != "mysql" && (err == nil || errors.Is(err, outbox.ErrDuplicate)) { // MySQL shows the value alone
			t.Error(err)
		}
	})
}

// Two transactions insert one id: the second waits for the first, and one of them commits.
func TestTwoProducers(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		outboxTable := table(t, db.Dialect, "outbox", outbox.Options{})
		errs := make(chan error, 8)
		for range cap(errs) {
			go func() {
				errs <- func() error {
					tx, err := db.DB.BeginTx(context.Background(), nil)
					if err != nil {
						return err
					}
					defer tx.Rollback()
					if err := outboxTable.Enqueue(context.Background(), tx, outbox.Message{ID: "a"}); err != nil {
						return err
					}
					return tx.Commit()
				}()
			}()
		}
		committed := 0
		for range cap(errs) {
			if err := <-errs; err == nil {
				committed++
			} else if !errors.Is(err, outbox.ErrDuplicate) {
				t.Error(err)
			}
		}
		if committed != 1 {
			t.Errorf("%d committed", committed)
		}
	})
}

// A role that may only insert is not told which key PostgreSQL has refused.
func TestRightToInsertOnly(t *testing.T) {
	db := prepared.Postgres(t)
	outboxTable := table(t, "postgres", "outbox", outbox.Options{})
	db.Exec(t, "CREATE ROLE "+role(db)+"; GRANT INSERT ON outbox TO "+role(db))
	t.Cleanup(func() {
		db.DB.ExecContext(context.Background(), "DROP OWNED BY "+role(db)+"; DROP ROLE "+role(db))
	})
	try := func(messages ...outbox.Message) (twice *outbox.DuplicateError) {
		tx, err := db.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(t.Context(), "SET LOCAL ROLE "+role(db)); err != nil {
			t.Fatal(err)
		}
		if err = outboxTable.Enqueue(t.Context(), tx, messages...); err == nil {
			err = tx.Commit()
		}
		if err != nil && !errors.As(err, &twice) {
			t.Error(err)
		}
		return twice
	}
	if err := try(outbox.Message{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := try(outbox.Message{ID: "a"}); err == nil || err.ID != "a" {
		t.Error(err)
	}
	if err := try(outbox.Message{ID: "b"}, outbox.Message{ID: "a"}); err == nil || err.ID != "" {
		t.Error(err)
	}
}

func role(db prepared.Database) string {
	name, _, _ := strings.Cut(db.DSN[strings.LastIndex(db.DSN, "/connectd_app")+1:], "?")
	return name
}

// With pgx, in each query mode: what goes through a pooler sends other types.
func TestPgx(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			db := prepared.Postgres(t)
			db.Exec(t, "CREATE TABLE texts (id uuid PRIMARY KEY, aggregateid int, payload jsonb, headers json)")
			conn, err := pgx.Connect(t.Context(), db.DSN+"&default_query_exec_mode="+mode)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background())
			in := func(table *outbox.Table, messages ...outbox.Message) error {
				return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					return outbox.EnqueuePgx(t.Context(), table, tx, messages...)
				})
			}
			if err := in(table(t, "postgres", "outbox", outbox.Options{}), samples...); err != nil {
				t.Fatal(err)
			}
			check(t, db)
			texts := table(t, "postgres", "texts", outbox.Options{Payload: outbox.JSON})
			m := outbox.Message{ID: "AD0C5E1E-0000-4000-8000-00000000000A", Key: "12", Payload: []byte(`{"a": "ü"}`), Headers: map[string]string{"h": "v"}}
			if err := in(texts, m); err != nil {
				t.Fatal(err)
			}
			err = in(texts, outbox.Message{ID: "ad0c5e1e-0000-4000-8000-00000000000b"}, m)
			var twice *outbox.DuplicateError
			if !errors.As(err, &twice) || twice.ID != m.ID {
				t.Error(err)
			}
			if err := in(table(t, "mysql", "outbox", outbox.Options{}), m); err == nil {
				t.Error("a dialect that pgx does not speak")
			}
		})
	}
}
