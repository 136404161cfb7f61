package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"

	"modernc.org/sqlite"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

var _ core.Auditor = (*Source)(nil)

// Audit checks the laws of conservation, on a connection of its own. While it reads, the write-ahead log cannot begin anew
// and grows by what is written.
func (src *Source) Audit(ctx context.Context, req core.AuditRequest) (core.Audit, error) {
	ctx, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	db := connect(src.path, access{mode: "ro", busy: src.busy, queryOnly: true})
	defer db.Close()
	db.SetMaxOpenConns(1)
	audit, err := src.audit(ctx, db, req)
	if err != nil {
		return audit, fmt.Errorf("sqlite: audit: %w", err)
	}
	return audit, nil
}

func (src *Source) audit(ctx context.Context, db *sql.DB, req core.AuditRequest) (core.Audit, error) {
	// What is sorted may be larger than memory.
	if _, err := db.ExecContext(ctx, `PRAGMA temp_store = FILE`); err != nil {
		return core.Audit{}, fmt.Errorf("have temporary files: %w", err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return core.Audit{}, err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one snapshot
	if err != nil {
		return core.Audit{}, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback()
	var now int64 // read before anything else, so that the snapshot is not older
	if err := tx.QueryRowContext(ctx, `SELECT `+nowMS).Scan(&now); err != nil {
		return core.Audit{}, fmt.Errorf("read the clock: %w", err)
	}
	q := src.auditSQL(req, strconv.FormatInt(now, 10))
	if err := src.auditOthers(ctx, tx, &q); err != nil {
		return core.Audit{}, fmt.Errorf("look at the other outbox tables: %w", err)
	}
	if err := only(conn, sqlite.AuthSelect, sqlite.AuthRead, sqlite.AuthFunction, sqlite.AuthRecursive); err != nil {
		return core.Audit{}, fmt.Errorf("bound what the rule may do: %w", err)
	}
	return layout.RunAudit(ctx, req, q, func(ctx context.Context, query string, row func(func(...any) error) error) error {
		rows, err := tx.QueryContext(ctx, query)
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
}

// only refuses whatever else a statement would do on the connection from now on, the end of its transaction included. The
// rule's SQL is the operator's, and what it is pasted into would let it be several statements: it could undo what a PRAGMA
// forbids, and open other files to write into.
func only(conn *sql.Conn, actions ...sqlite.AuthorizerActionCode) error {
	return conn.Raw(func(driver any) error {
		return driver.(sqlite.AuthorizerRegisterer).RegisterAuthorizer(func(action sqlite.AuthorizerActionCode, _, _, _, _ string) sqlite.AuthorizerReturnCode {
			if slices.Contains(actions, action) {
				return sqlite.AuthorizerOK
			}
			return sqlite.AuthorizerDeny
		})
	})
}

// auditOthers adds the ids of the other outbox tables that share the receipts.
func (src *Source) auditOthers(ctx context.Context, tx *sql.Tx, q *layout.AuditSQL) error {
	others, err := src.neighbours(ctx, tx)
	if err != nil {
		return err
	}
	return q.AddOthers(others, func(n layout.Neighbour) (entries []string, err error) {
		err = lookInto(n, func(other *Source) error {
			entries = []string{other.text.fill(fmt.Sprintf(`SELECT CAST({id} AS TEXT) COLLATE BINARY AS v, %d AS k FROM {table}`, layout.OtherEntry)), other.text.fill(cleanedEntries(layout.OtherEntry))}
			_, err := tx.ExecContext(ctx, other.text.fill(`SELECT {id} FROM {table} LIMIT 0`))
			return err
		})
		return entries, err
	})
}

func cleanedEntries(entry int) string {
	return fmt.Sprintf(`SELECT command_id AS v, %d AS k FROM connectd_cleaned WHERE tbl = {tbl}`, entry)
}

// auditSQL are the audit's queries, of that time in milliseconds. They have no parameters, since the operator's own SQL is among them.
func (src *Source) auditSQL(req core.AuditRequest, now string) layout.AuditSQL {
	entry := fmt.Sprint(layout.RowEntry)
	if req.ReceiptWithin >= 0 {
		entry = fmt.Sprintf(`CASE WHEN `+layout.Owes+` AND typeof({published_at}) = 'integer' AND {published_at} < {now} - %d THEN %d ELSE %d END`,
			req.ReceiptWithin.Milliseconds(), layout.LateEntry, layout.RowEntry)
	}
	q := layout.AuditSQL{
		Rows:     `SELECT coalesce(CAST({id} AS TEXT), '(no id) row ' || {order}) COLLATE BINARY AS v, ` + entry + ` AS k FROM {table}`,
		Cleaned:  cleanedEntries(layout.CleanedEntry),
		Receipts: fmt.Sprintf(`SELECT CAST(command_id AS TEXT) AS v, CASE status WHEN 'done' THEN %d ELSE %d END AS k FROM connectd_receipt`, layout.DoneEntry, layout.ReceiptEntry),
		States:   `SELECT CAST({state} AS TEXT), count(*) FROM {table} GROUP BY {state}`,
		Ledger:   `SELECT coalesce(sum(count), 0) FROM connectd_ledger WHERE tbl = {tbl}`,
		Strange:  `SELECT CAST({id} AS TEXT) FROM {table} WHERE {state} IS NULL OR {state} NOT IN ('pending', 'held', 'dead', 'skipped', 'published')`,
		Abandoned: `SELECT 'partition ' || part || ', held by ' || l.owner FROM connectd_lease l LEFT JOIN connectd_worker w ON w.tbl = l.tbl AND w.owner = l.owner
			WHERE l.tbl = {tbl} AND l.lease_until > {now} AND (w.heartbeat IS NULL OR w.heartbeat < {now} - ` + fmt.Sprintf(`%d)`, 2*req.Lease.Milliseconds()),
		Stray: `SELECT 'partition ' || i.part || ', epoch ' || i.epoch || ', batch ' || i.batch FROM connectd_inflight i LEFT JOIN connectd_lease l ON l.tbl = i.tbl AND l.part = i.part
			WHERE i.tbl = {tbl} AND l.epoch IS NOT i.epoch`,
	}.Fill(src.text.fill, now)
	if req.Events == nil {
		return q
	}
	value, key := `(`+req.Events.Command+"\n)", quote(req.Events.Key)
	if req.Events.Join != "" {
		value = key
		q.Links = `SELECT coalesce(CAST(` + quote(req.Events.Join) + src.text.fill(` AS TEXT), '(none) of row ' || coalesce(CAST({id} AS TEXT), {order})) AS v, `) +
			fmt.Sprintf(`%d AS k FROM %s`, layout.RowEntry, quote(src.s.table))
	}
	q.Events = fmt.Sprintf(`SELECT coalesce(CAST(%s AS TEXT), '(none) of event ' || CAST(%s AS TEXT)) AS v, %d AS k FROM %s`, value, key, layout.EventEntry, quote(req.Events.Table))
	if req.Events.Where != "" {
		q.Events += " WHERE (" + req.Events.Where + "\n)"
	}
	return q
}
