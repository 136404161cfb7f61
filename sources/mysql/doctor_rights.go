package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// needs are statements of the kinds that a daemon runs, each with the right it takes. The server checks the rights of a statement
// that it only explains, with roles and rights on columns and all; it carries none of them out.
var needs = []struct{ right, table, statement string }{
	{"SELECT", "{table}", `SELECT {order}, {id}, {key}, {route}, {type}, {payload}, {headers}, {created}, {state}, {partition}, {available_at}, {attempts}, {deliveries},
		{crashes}, {last_error}, {failing_since}, {published_at} FROM {table} WHERE {order} = 0`},
	{"UPDATE", "{table}", `UPDATE {table} SET {state} = 'published', {available_at} = {now}, {attempts} = 0, {deliveries} = 0, {crashes} = 0, {last_error} = '',
		{failing_since} = {now}, {published_at} = {now} WHERE {order} = 0`},
	{"DELETE", "{table}", `DELETE FROM {table} WHERE {order} = 0`},
	{"SELECT", "{outbox}", `SELECT changes FROM {outbox} WHERE tbl = ''`},
	{"UPDATE", "{outbox}", `UPDATE {outbox} SET changes = 0 WHERE tbl = ''`},
	{"SELECT", "{lease}", `SELECT part FROM {lease} WHERE tbl = ''`},
	{"UPDATE", "{lease}", `UPDATE {lease} SET owner = NULL, epoch = 0, lease_until = {now} WHERE tbl = ''`},
	{"SELECT", "{worker}", `SELECT owner FROM {worker} WHERE tbl = ''`},
	{"INSERT", "{worker}", `INSERT INTO {worker} (tbl, owner, heartbeat, info) VALUES ('', '', {now}, '')`},
	{"UPDATE", "{worker}", `UPDATE {worker} SET heartbeat = {now}, info = '' WHERE tbl = ''`},
	{"DELETE", "{worker}", `DELETE FROM {worker} WHERE tbl = ''`},
	{"SELECT", "{inflight}", `SELECT seqs FROM {inflight} WHERE tbl = ''`},
	{"INSERT", "{inflight}", `INSERT INTO {inflight} (tbl, part, epoch, batch, seqs, sent_at) VALUES ('', 0, 0, 0, '', {now})`},
	{"UPDATE", "{inflight}", `UPDATE {inflight} SET seqs = '' WHERE tbl = ''`},
	{"DELETE", "{inflight}", `DELETE FROM {inflight} WHERE tbl = ''`},
	{"SELECT", "{attempt}", `SELECT n FROM {attempt} WHERE tbl = ''`},
	{"INSERT", "{attempt}", "INSERT INTO {attempt} (tbl, seq, at, deliveries, code, message, `by`, duration_us) VALUES ('', 0, {now}, 0, '', '', '', 0)"},
	{"DELETE", "{attempt}", `DELETE FROM {attempt} WHERE tbl = ''`},
	{"SELECT", "{revision}", `SELECT payload FROM {revision} WHERE tbl = ''`},
	{"INSERT", "{revision}", "INSERT INTO {revision} (tbl, seq, n, at, `by`, why) VALUES ('', 0, 0, {now}, '', '')"},
	{"DELETE", "{revision}", `DELETE FROM {revision} WHERE tbl = ''`},
	{"SELECT", "{ledger}", `SELECT count FROM {ledger} WHERE tbl = ''`},
	{"INSERT", "{ledger}", `INSERT INTO {ledger} (tbl, day, state, part, count) VALUES ('', UTC_DATE(), '', 0, 0)`},
	{"UPDATE", "{ledger}", `UPDATE {ledger} SET count = 0 WHERE tbl = ''`},
	{"SELECT", "{receipt}", `SELECT status FROM {receipt} WHERE command_id = ''`},
	{"INSERT", "{receipt}", `INSERT INTO {receipt} (command_id) VALUES ('')`},
	{"UPDATE", "{receipt}", `UPDATE {receipt} SET status = '' WHERE command_id = ''`},
	{"DELETE", "{receipt}", `DELETE FROM {receipt} WHERE command_id = ''`},
	{"SELECT", "{cleaned}", `SELECT at FROM {cleaned} WHERE tbl = ''`},
	{"INSERT", "{cleaned}", `INSERT INTO {cleaned} (tbl, command_id, at) VALUES ('', '', {now})`},
	{"UPDATE", "{cleaned}", `UPDATE {cleaned} SET at = {now} WHERE tbl = ''`},
	{"DELETE", "{cleaned}", `DELETE FROM {cleaned} WHERE tbl = ''`},
}

// rights lets the server explain the statements, and gathers those that it refuses.
func (d *doctor) rights(ctx context.Context) error {
	var tables []string
	lost := map[string][]string{}
	for _, n := range needs {
		err := d.explained(ctx, d.src.text.fill(n.statement))
		switch table := d.src.text.fill(n.table); {
		case err == nil:
		case !isDenied(err):
			return fmt.Errorf("ask for the right to %s in %s: %w", n.right, table, err)
		default:
			if lost[table] == nil {
				tables = append(tables, table)
			}
			lost[table] = append(lost[table], n.right)
		}
	}
	var user string
	if err := d.db.QueryRowContext(ctx, `SELECT CURRENT_USER()`).Scan(&user); err != nil {
		return err
	}
	at := strings.LastIndexByte(user, '@')
	account := literal(user[:at]) + "@" + literal(user[at+1:])
	outbox := d.src.s.table.quoted()
	if len(tables) == 1 && tables[0] == outbox && !d.cfg.DeletePublished && strings.Join(lost[outbox], "") == "DELETE" {
		d.Warn("rights", fmt.Sprintf("user %s has all that sending needs, and not DELETE on %s: rows that are kept are never cleaned up", user, d.src.s.table), "GRANT DELETE ON "+outbox+" TO "+account)
		return nil
	}
	if tables == nil {
		d.Fine("rights", "user %s may do all that a daemon does", user)
		return nil
	}
	var words, grants []string
	for _, t := range tables {
		verbs := strings.Join(lost[t], ", ")
		words, grants = append(words, verbs+" on "+t), append(grants, "GRANT "+verbs+" ON "+t+" TO "+account)
	}
	d.Fault("rights", "user "+user+" lacks "+strings.Join(words, "; "), strings.Join(grants, "; "))
	return nil
}

// explained has a statement explained.
func (d *doctor) explained(ctx context.Context, statement string) error {
	return collect(ctx, d.db, func(*sql.Rows) error { return nil }, "EXPLAIN "+statement)
}
