package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// statements are those of the hot path, prepared once. Their text holds the table's and its columns' names.
type statements struct {
	fetch, fetchSome          *sql.Stmt // without and with rows and keys to leave out
	fence, recover            *sql.Stmt
	publishRange, publishSpan *sql.Stmt
	publishSet                *sql.Stmt
	complete, settle, note    *sql.Stmt
	announce, finish, empty   *sql.Stmt
}

func (st *statements) prepare(ctx context.Context, src *Source) error {
	t := src.text
	publish := t.publish
	if src.deletePublished {
		publish = t.remove
	}
	for _, p := range []struct {
		to   **sql.Stmt
		db   *sql.DB
		text string
	}{
		{&st.fetch, src.read, t.fetch(false)},
		{&st.fetchSome, src.read, t.fetch(true)},
		{&st.fence, src.write, fenceSQL},
		{&st.recover, src.write, t.recover()},
		{&st.publishRange, src.write, publish(t.inRange())},
		{&st.publishSpan, src.write, publish(t.inSpan())},
		{&st.publishSet, src.write, publish(t.inSet())},
		{&st.complete, src.write, t.complete()},
		{&st.settle, src.write, t.settle()},
		{&st.note, src.write, t.note()},
		{&st.announce, src.write, `INSERT INTO connectd_inflight (tbl, part, epoch, batch, seqs, sent_at) VALUES (?, ?, ?, ?, ?, ` + nowMS + `) ON CONFLICT DO NOTHING`},
		{&st.finish, src.write, `DELETE FROM connectd_inflight WHERE tbl = ? AND part = ? AND epoch = ? AND batch = ?`},
		{&st.empty, src.write, `UPDATE connectd_inflight SET seqs = '[]' WHERE tbl = ? AND part = ? AND epoch = ? AND batch = ?`},
	} {
		var err error
		if *p.to, err = p.db.PrepareContext(ctx, p.text); err != nil {
			return fmt.Errorf("prepare %s: %w", p.text, err)
		}
	}
	return nil
}

// texts writes the statements: {name} stands for the table, its index or its columns, quoted.
type texts struct{ names *strings.Replacer }

func (s *schema) texts() texts {
	c := &s.cols
	pairs := []string{"{table}", quote(s.table), "{tbl}", literal(s.table), "{pending}", quote(s.pendingIndex()), "{stopped}", quote(s.stoppedIndex()), "{held}", quote(s.heldIndex()), "{now}", nowMS,
		"{deliveries known}", known(quote(c.Deliveries), layout.MaxCount), "{crashes known}", known(quote(c.Crashes), layout.MaxCrashes),
		"{published known}", knownTime(quote(c.PublishedAt)), "{failing known}", knownTime(quote(c.FailingSince))}
	for each, name := range c.All() {
		// A column that is not there reads as NULL.
		column := "NULL"
		if name != "" {
			column = quote(name)
		}
		pairs = append(pairs, "{"+each+"}", column)
	}
	extra := ""
	for _, h := range s.extra {
		extra += ", CAST(" + quote(h.Column) + " AS TEXT)"
	}
	// Rows are settled by their order column. Where it is the rowid SQLite would rather take an index, which costs
	// more; elsewhere the column's own index is the only way.
	byOrder := quote(s.table) + " NOT INDEXED"
	if s.byTrigger {
		byOrder = quote(s.table)
	}
	return texts{strings.NewReplacer(append(pairs, "{rows}", byOrder, "{extra}", extra)...)}
}

func (t texts) fill(text string) string { return t.names.Replace(text) }

// known is a counter as a scanner takes it: 0 where an application wrote what the relay never does.
func known(column string, most int) string {
	return fmt.Sprintf(`CASE WHEN typeof(%[1]s) = 'integer' AND %[1]s BETWEEN 0 AND %[2]d THEN %[1]s ELSE 0 END`, column, most)
}

// knownTime is a time that the relay or a consumer wrote, or NULL where it is none: SQLite takes anything, and arithmetic
// with some of it gives no integer.
func knownTime(column string) string {
	return fmt.Sprintf(`CASE WHEN typeof(%[1]s) = 'integer' AND %[1]s BETWEEN 1 AND 253370764800000 THEN %[1]s END`, column) // the year 9999
}

// rowColumns are read for every row, in the order in which a scanner takes them. Each column has its price in the
// driver, so what is zero in a row that was never sent comes as one: deliveries, attempts, crashes, the wait and the
// time since the first failure, in milliseconds, and the operators' changes, as a JSON array. An application that delays a row may have written anything
// into available_at: no value of it may fail the page.
//
// The casts give bytes as they are stored, and keep the driver from reading text in a column declared DATETIME as a
// time. For the same reason created has its plus sign: an expression has no declared type. SQLite keeps anything in a
// column of integers; a counter that is none comes as -1, which makes the row invalid.
const rowColumns = `{order}, CAST({id} AS TEXT), CAST({key} AS TEXT), CAST({route} AS TEXT), CAST({type} AS TEXT), CAST({payload} AS BLOB),
	CAST({headers} AS TEXT), +{created},
	CASE WHEN {deliveries} <> 0 OR {available_at} <> 0 OR {attempts} <> 0 OR {crashes} <> 0 THEN json_array(
		CASE typeof({deliveries}) WHEN 'integer' THEN {deliveries} ELSE -1 END, CASE typeof({attempts}) WHEN 'integer' THEN {attempts} ELSE -1 END,
		CASE typeof({crashes}) WHEN 'integer' THEN {crashes} ELSE -1 END,
		CASE {available_at} WHEN 0 THEN 0 ELSE min(max(CAST({available_at} AS INTEGER), 0), 9000000000000000) - {now} END,
		coalesce(max({now} - {failing known}, 1), 0),
		(SELECT changes FROM connectd_outbox WHERE tbl = {tbl})) END{extra}`

// fetch reads one row more than the page may have, to know whether there are more. Its arguments are after, limit and,
// with leaveOut, the known seqs and the keys that must wait, in JSON; keys as hex, since text may hold anything.
func (t texts) fetch(leaveOut bool) string {
	text := `SELECT ` + rowColumns + ` FROM {table} INDEXED BY {pending} WHERE {state} = 'pending' AND {order} > ?1`
	if leaveOut {
		text += ` AND {order} NOT IN (SELECT value FROM json_each(?3))
			AND ({key} IS NULL OR hex(CAST({key} AS TEXT)) NOT IN (SELECT value FROM json_each(?4)))`
	}
	return t.fill(text + ` ORDER BY {order} LIMIT ?2 + 1`)
}

// recover: seqs in JSON, crashes that bury, whether to hold, what happened.
func (t texts) recover() string {
	return t.fill(`UPDATE {table} SET {deliveries} = {deliveries known} + 1, {crashes} = {crashes known} + 1,
		{state} = CASE WHEN {crashes known} + 1 >= ?2 THEN 'dead' WHEN ?3 THEN 'held' ELSE 'pending' END,
		{last_error} = CASE WHEN {crashes known} + 1 >= ?2 THEN '` + core.ReasonCrash + `: ' || ?4 WHEN ?3 THEN '` + core.ReasonUncertain + `: ' || ?4 ELSE {last_error} END
		WHERE {state} = 'pending' AND {order} IN (SELECT value FROM json_each(?1))
		RETURNING {order}, {state}, {crashes}`)
}

// The rows of a settlement, and its guard: deliveries as last known, ?1.
func (t texts) inRange() string {
	return t.fill(` WHERE {order} BETWEEN ?4 AND ?5 AND {state} = 'pending' AND {deliveries known} = ?1`)
}

// inSpan is inRange with a mask of the rows that are meant.
func (t texts) inSpan() string {
	return t.fill(` WHERE {order} BETWEEN ?4 AND ?5 AND substr(?6, {order} - ?4 + 1, 1) = x'01' AND {state} = 'pending' AND {deliveries known} = ?1`)
}

func (t texts) inSet() string {
	return t.fill(` WHERE {order} IN (SELECT value FROM json_each(?4)) AND {state} = 'pending' AND {deliveries known} = ?1`)
}

// publish: deliveries as last known, attempts, crashes. It has no OR clause, which would be cheaper: it would replace
// those of the application's own triggers on the table, such as an INSERT OR IGNORE.
func (t texts) publish(where string) string {
	return t.fill(`UPDATE {rows} SET {state} = 'published', {published_at} = {now}, {deliveries} = ?1 + 1, {attempts} = ?2, {crashes} = ?3` + where)
}

// remove takes the same arguments and needs the first only.
func (t texts) remove(where string) string {
	return t.fill(`DELETE FROM {rows}` + where)
}

// complete: deliveries as last known, consumer, nothing, seqs in JSON.
func (t texts) complete() string {
	return t.fill(`INSERT INTO connectd_receipt (command_id, consumer) SELECT CAST({id} AS TEXT), ?2 FROM {rows}`) + t.inSet() + ` ON CONFLICT DO NOTHING`
}

// keepIDs: deliveries as last known, nothing, table, seqs in JSON.
func (t texts) keepIDs() string {
	return t.fill(`INSERT INTO connectd_cleaned (tbl, command_id, at) SELECT ?3, CAST({id} AS TEXT), {now} FROM {rows}`) + t.inSet() + ` ON CONFLICT DO UPDATE SET at = excluded.at`
}

// settle: deliveries as last known, attempts, crashes, seq, state, delay in milliseconds, error text or NULL.
func (t texts) settle() string {
	return t.fill(`UPDATE {table} SET {state} = ?5, {deliveries} = ?1 + 1, {attempts} = ?2, {crashes} = ?3,
		{failing_since} = CASE WHEN ?2 = 0 THEN NULL ELSE coalesce(min({failing known}, {now}), {now}) END,
		{available_at} = CASE WHEN ?6 > 0 THEN {now} + ?6 ELSE {available_at} END,
		{last_error} = coalesce(?7, {last_error})
		WHERE {order} = ?4 AND {state} = 'pending' AND {deliveries known} = ?1`)
}

// note: table, seq, code, message, by whom, duration in milliseconds, whether it was sent. It answers with the line's number.
func (t texts) note() string {
	return t.fill(`INSERT INTO connectd_attempt (tbl, seq, n, at, deliveries, code, message, by, duration_ms)
		SELECT ?1, ?2, (SELECT coalesce(max(n), 0) + 1 FROM connectd_attempt WHERE tbl = ?1 AND seq = ?2), {now}, {deliveries} * ?7, ?3, ?4, ?5, ?6
		FROM {table} WHERE {order} = ?2 RETURNING n`)
}
