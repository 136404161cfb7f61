package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

var _ core.Auditor = (*Source)(nil)

// Audit checks the laws of conservation, on a connection of its own, which goes with its settings.
func (src *Source) Audit(ctx context.Context, req core.AuditRequest) (core.Audit, error) {
	ctx, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	pool := src.from.pool(1)
	defer pool.Close()
	var audit core.Audit
	err := src.try(ctx, "audit", func() error {
		conn, err := pool.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		now, err := beginAudit(ctx, conn, req)
		if err != nil {
			return err
		}
		q, err := src.auditSQL(req, now)
		if err != nil {
			return err
		}
		if err := src.auditOthers(ctx, conn, &q); err != nil {
			return err
		}
		audit, err = layout.RunAudit(ctx, req, q, func(ctx context.Context, query string, row func(func(...any) error) error) error {
			return collect(ctx, conn, func(rows *sql.Rows) error { return row(rows.Scan) }, query)
		})
		return err
	})
	return audit, err
}

// beginAudit takes a snapshot, and says when, as a value in SQL. A server goes on with a statement whose client is gone, so it has the deadline too; each kind
// of server has a variable of its own for that.
func beginAudit(ctx context.Context, conn *sql.Conn, req core.AuditRequest) (now string, err error) {
	var version string
	if err := conn.QueryRowContext(ctx, `SELECT VERSION()`).Scan(&version); err != nil {
		return "", err
	}
	// MySQL stores the union before it sorts it; beyond this size it does so on disk.
	limit := fmt.Sprintf(`SET SESSION max_execution_time = %d, tmp_table_size = 536870912`, max(req.Timeout.Milliseconds(), 1))
	if strings.Contains(version, "MariaDB") {
		limit = fmt.Sprintf(`SET SESSION max_statement_time = %f`, req.Timeout.Seconds())
	}
	if err := conn.QueryRowContext(ctx, `SELECT CONCAT('TIMESTAMP''', UTC_TIMESTAMP(6), '''')`).Scan(&now); err != nil {
		return "", fmt.Errorf("read the clock: %w", err)
	}
	for _, text := range []string{limit, `SET SESSION sort_buffer_size = 67108864`, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, `START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY`} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			return "", fmt.Errorf("take a snapshot: %w", err)
		}
	}
	return now, nil
}

// auditOthers adds the ids of the other outbox tables that share the receipts. Looking at a table keeps it as it is until the
// audit ends.
func (src *Source) auditOthers(ctx context.Context, q querier, into *layout.AuditSQL) error {
	others, err := src.neighbours(ctx, q)
	if err != nil {
		return err
	}
	return into.AddOthers(others, func(n layout.Neighbour) (entries []string, err error) {
		err = src.lookInto(ctx, q, n, func(other *Source) error {
			entries = []string{other.text.fill(fmt.Sprintf(`SELECT `+bytewise(`{id.text}`)+` AS v, %d AS k FROM {table}`, layout.OtherEntry)), other.text.fill(cleanedEntries(layout.OtherEntry))}
			_, err := q.ExecContext(ctx, other.text.fill(`SELECT {id} FROM {table} LIMIT 0`))
			return err
		})
		return entries, err
	})
}

func cleanedEntries(entry int) string {
	return fmt.Sprintf(`SELECT `+bytewise(`command_id`)+` AS v, %d AS k FROM {cleaned} WHERE tbl = {tbl}`, entry)
}

// auditSQL are the audit's queries, of that time. They have no parameters, since the operator's own SQL is among them.
func (src *Source) auditSQL(req core.AuditRequest, now string) (layout.AuditSQL, error) {
	entry := fmt.Sprint(layout.RowEntry)
	if req.ReceiptWithin >= 0 {
		entry = fmt.Sprintf(`CASE WHEN `+layout.Owes+` AND {published_at} <> {epoch} AND {published_at} < {now} - INTERVAL %d MICROSECOND THEN %d ELSE %d END`,
			req.ReceiptWithin.Microseconds(), layout.LateEntry, layout.RowEntry)
	}
	q := layout.AuditSQL{
		Big:      `SQL_BIG_RESULT`,
		Rows:     `SELECT COALESCE(` + bytewise(`{id.text}`) + `, CONCAT('(no id) row ', {order})) AS v, ` + entry + ` AS k FROM {table}`,
		Cleaned:  cleanedEntries(layout.CleanedEntry),
		Receipts: fmt.Sprintf(`SELECT `+bytewise(`command_id`)+` AS v, CASE status WHEN 'done' THEN %d ELSE %d END AS k FROM {receipt}`, layout.DoneEntry, layout.ReceiptEntry),
		States:   `SELECT {state}, COUNT(*) FROM {table} GROUP BY {state}`,
		Ledger:   `SELECT CAST(COALESCE(SUM(count), 0) AS SIGNED) FROM {ledger} WHERE tbl = {tbl}`,
		Strange:  `SELECT {id.text} FROM {table} WHERE {state} NOT IN ('pending', 'held', 'dead', 'skipped', 'published')`,
		Abandoned: `SELECT CONCAT('partition ', part, ', held by ', l.owner) FROM {lease} l LEFT JOIN {worker} w ON w.tbl = l.tbl AND w.owner = l.owner
			WHERE l.tbl = {tbl} AND l.owner IS NOT NULL AND l.lease_until > {now} AND (w.heartbeat IS NULL OR w.heartbeat < {now} - ` + fmt.Sprintf(`INTERVAL %d MICROSECOND)`, 2*req.Lease.Microseconds()),
		Stray: `SELECT CONCAT('partition ', i.part, ', epoch ', i.epoch, ', batch ', i.batch) FROM {inflight} i LEFT JOIN {lease} l ON l.tbl = i.tbl AND l.part = i.part
			WHERE i.tbl = {tbl} AND NOT l.epoch <=> i.epoch`,
	}.Fill(src.text.fill, now)
	if req.Events == nil {
		return q, nil
	}
	table, err := parseTable(req.Events.Table)
	if err != nil {
		return q, fmt.Errorf("the events: %w", err)
	}
	key := quote(req.Events.Key)
	value := src.s.found[strings.ToLower(src.s.cols.ID)].like(`(` + req.Events.Command + "\n)")
	if req.Events.Join != "" {
		link := quote(req.Events.Join)
		value = key
		if join, is := src.s.found[strings.ToLower(req.Events.Join)]; is {
			link, value = join.text(), join.like(key)
		}
		q.Links = `SELECT COALESCE(` + bytewise(link) + src.text.fill(`, CONCAT('(none) of row ', COALESCE(`+bytewise(`{id.text}`)+`, {order}))) AS v, `) +
			fmt.Sprintf(`%d AS k FROM %s`, layout.RowEntry, src.s.table.quoted())
	}
	q.Events = fmt.Sprintf(`SELECT COALESCE(%s, CONCAT('(none) of event ', %s)) AS v, %d AS k FROM %s`, bytewise(value), bytewise(key), layout.EventEntry, table.quoted())
	if req.Events.Where != "" {
		q.Events += " WHERE (" + req.Events.Where + "\n)"
	}
	return q, nil
}

// bytewise writes an expression as the bytes of its text, which is the quickest to sort too.
func bytewise(expression string) string {
	return `CAST(CONVERT(` + expression + ` USING utf8mb4) AS BINARY)`
}
