package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

var _ core.Auditor = (*Source)(nil)

// Audit checks the laws of conservation. Its reads are one process of the server, so that producers keep the others, and
// sort on disk what does not fit into its memory.
func (src *Source) Audit(ctx context.Context, req core.AuditRequest) (core.Audit, error) {
	q, err := src.auditSQL(req)
	if err != nil {
		return core.Audit{}, fmt.Errorf("postgres: audit: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	var audit core.Audit
	err = src.try(ctx, "audit", func() (err error) {
		tx, err := src.work.BeginTx(ctx, pgx.TxOptions{BeginQuery: `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`})
		if err != nil {
			return err
		}
		// Nothing is to be kept, and a statement that ran into its end has no connection to say so on.
		defer tx.Rollback(context.WithoutCancel(ctx))
		_, err = tx.Exec(ctx, fmt.Sprintf(`SET LOCAL statement_timeout = %d; SET LOCAL work_mem = '64MB'; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off;
			SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on`,
			max(req.Timeout.Milliseconds(), 1)))
		if err != nil {
			return err
		}
		if err := src.auditOthers(ctx, tx, &q); err != nil {
			return err
		}
		audit, err = layout.RunAudit(ctx, req, q, func(ctx context.Context, query string, row func(func(...any) error) error) error {
			rows, err := tx.Query(ctx, query, pgx.QueryExecModeExec) // which takes one statement: none of the rule's ends the transaction
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				if err := row(rows.Scan); err != nil {
					return err
				}
			}
			return rows.Err()
		})
		return err
	})
	return audit, err
}

// auditOthers adds the ids of the other outbox tables that share the receipts. Looking at a table keeps it as it is until the
// audit ends.
func (src *Source) auditOthers(ctx context.Context, tx pgx.Tx, q *layout.AuditSQL) error {
	others, err := src.neighbours(ctx, tx)
	if err != nil {
		return err
	}
	return q.AddOthers(others, func(n layout.Neighbour) (entries []string, err error) {
		err = src.lookInto(ctx, tx, n, func(tx pgx.Tx, other *Source) error {
			entries = []string{other.text.fill(fmt.Sprintf(`SELECT {id}::text`+bytewise+`%d AS k FROM {table}`, layout.OtherEntry)), other.text.fill(cleanedEntries(layout.OtherEntry))}
			_, err := tx.Exec(ctx, other.text.fill(`SELECT {id} FROM {table} LIMIT 0`))
			return err
		})
		return entries, err
	})
}

const bytewise = ` COLLATE "C" AS v, `

func cleanedEntries(entry int) string {
	return fmt.Sprintf(`SELECT command_id`+bytewise+`%d AS k FROM {connectd_cleaned} WHERE tbl = {tbl}`, entry)
}

// auditSQL are the audit's queries. They have no parameters, since the operator's own SQL is among them.
func (src *Source) auditSQL(req core.AuditRequest) (layout.AuditSQL, error) {
	entry := fmt.Sprint(layout.RowEntry)
	if req.ReceiptWithin >= 0 {
		entry = fmt.Sprintf(`CASE WHEN `+layout.Owes+` AND {published_at} < {now} - interval '%d microseconds' THEN %d ELSE %d END`, req.ReceiptWithin.Microseconds(), layout.LateEntry, layout.RowEntry)
	}
	q := layout.AuditSQL{
		Rows:     `SELECT coalesce({id}::text, '(no id) row ' || {order})` + bytewise + entry + ` AS k FROM {table}`,
		Cleaned:  cleanedEntries(layout.CleanedEntry),
		Receipts: fmt.Sprintf(`SELECT command_id`+bytewise+`CASE status WHEN 'done' THEN %d ELSE %d END AS k FROM {connectd_receipt}`, layout.DoneEntry, layout.ReceiptEntry),
		States:   `SELECT {state}::text, count(*) FROM {table} GROUP BY {state}`,
		Ledger:   `SELECT coalesce(sum(count), 0)::bigint FROM {connectd_ledger} WHERE tbl = {tbl}`,
		Strange:  `SELECT {id}::text FROM {table} WHERE {state} IS NULL OR {state} NOT IN ('pending', 'held', 'dead', 'skipped', 'published')`,
		Abandoned: `SELECT 'partition ' || part || ', held by ' || l.owner FROM {connectd_lease} l LEFT JOIN {connectd_worker} w ON w.tbl = l.tbl AND w.owner = l.owner
			WHERE l.tbl = {tbl} AND l.lease_until > {now} AND (w.heartbeat IS NULL OR w.heartbeat < {now} - ` + fmt.Sprintf(`interval '%d microseconds')`, 2*req.Lease.Microseconds()),
		Stray: `SELECT 'partition ' || i.part || ', epoch ' || i.epoch || ', batch ' || i.batch FROM {connectd_inflight} i LEFT JOIN {connectd_lease} l ON l.tbl = i.tbl AND l.part = i.part
			WHERE i.tbl = {tbl} AND l.epoch IS DISTINCT FROM i.epoch`,
	}
	q = q.Fill(src.text.fill, `current_timestamp`) // the transaction's, which is a little older than its snapshot
	if req.Events == nil {
		return q, nil
	}
	table, err := parseTable(req.Events.Table)
	if err != nil {
		return q, fmt.Errorf("the events: %w", err)
	}
	value := `(` + req.Events.Command + "\n)"
	if req.Events.Join != "" {
		value = quote(req.Events.Key)
		q.Links = `SELECT coalesce(` + quote(req.Events.Join) + src.text.fill(`::text, '(none) of row ' || coalesce({id}::text, {order}::text))`+bytewise) + fmt.Sprint(layout.RowEntry) + ` AS k FROM ` + src.s.table.quoted()
	}
	q.Events = fmt.Sprintf(`SELECT coalesce(%s::text, '(none) of event ' || %s::text)`+bytewise+`%d AS k FROM %s`, value, quote(req.Events.Key), layout.EventEntry, table.quoted())
	if req.Events.Where != "" {
		q.Events += " WHERE (" + req.Events.Where + "\n)"
	}
	return q, nil
}
