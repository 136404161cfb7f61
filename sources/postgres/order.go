package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
)

const (
	barrierFresh = 5 * time.Millisecond  // how long what was asked is taken for the present
	barrierPause = 10 * time.Millisecond // between two notes
	barrierGrace = 20 * time.Millisecond // between a note and its mark
	barrierNotes = 64
)

// barrier keeps rows back until every transaction that could still commit an earlier one has ended. It notes the
// highest number that was given out to a row, and then takes a mark, as horizon does; when all transactions below the
// mark have ended, no row up to that number can come any more. An insert takes its row's number a moment before it has
// one of its own: the mark is taken a little later for that.
type barrier struct {
	sequence string

	mu     sync.Mutex
	asked  time.Time
	notes  []note // ascending; the marks of the last ones may be still to be taken
	passed int64
}

// note: every row numbered at most given is there, or belongs to a transaction numbered below xid, once that is known.
type note struct {
	given, xid int64
	at         time.Time
}

// newBarrier finds the sequence that numbers the rows. One that hands numbers out in advance would break what the
// barrier promises.
func newBarrier(ctx context.Context, q querier, s *schema) (*barrier, error) {
	var name *string
	var cache int64
	err := q.QueryRow(ctx, `SELECT t.name, coalesce(s.seqcache, 0) FROM (SELECT pg_get_serial_sequence($1::text, $2::text) AS name) t
		LEFT JOIN pg_sequence s ON s.seqrelid = t.name::regclass`, s.table.quoted(), s.cols.Order).Scan(&name, &cache)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the sequence of column %s: %w", s.cols.Order, err)
	case name == nil:
		return nil, fmt.Errorf("rows cannot be kept in commit order: no sequence belongs to column %s", s.cols.Order)
	case cache > 1:
		return nil, fmt.Errorf("rows cannot be kept in commit order: sequence %s hands out %d numbers at a time (ALTER SEQUENCE %s CACHE 1)", *name, cache, *name)
	}
	return &barrier{sequence: *name}, nil
}

// passed is the highest number up to which all rows are there.
func (src *Source) passed(ctx context.Context) (int64, error) {
	b := src.order
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.asked) < barrierFresh {
		return b.passed, nil
	}
	asked := time.Now()
	err := src.run(ctx, src.work, "commit order", func(q querier) error { return b.ask(ctx, q) })
	if err != nil {
		return 0, err
	}
	b.asked = asked
	return b.passed, nil
}

// ask takes a note if there are new rows, and marks and passes what can be. The number is read before a mark is taken:
// a sequence does not keep to snapshots. The grace between both begins when the number is known, however long that took.
func (b *barrier) ask(ctx context.Context, q querier) error {
	var given, xid, oldest int64
	if err := q.QueryRow(ctx, `SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM `+b.sequence).Scan(&given); err != nil {
		return err
	}
	now := time.Now()
	b.note(given, now)
	if len(b.notes) == 0 {
		return nil
	}
	if b.ripe(now) > 0 {
		if err := q.QueryRow(ctx, takeMark).Scan(&xid); err != nil {
			return err
		}
	}
	if err := q.QueryRow(ctx, `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint`).Scan(&oldest); err != nil {
		return err
	}
	b.pass(xid, oldest, now)
	return nil
}

// note adds a note, if there is a new number. While a transaction stays open the notes get no more; the newest is kept
// up to date.
func (b *barrier) note(given int64, now time.Time) {
	n := len(b.notes)
	switch {
	case n == 0 && given > b.passed, n > 0 && n < barrierNotes && given > b.notes[n-1].given && now.Sub(b.notes[n-1].at) >= barrierPause:
		b.notes = append(b.notes, note{given: given, at: now})
	case n == barrierNotes && given > b.notes[n-1].given:
		b.notes[n-1] = note{given: given, at: now}
	}
}

// ripe counts the notes that may have their mark, and have none.
func (b *barrier) ripe(now time.Time) int {
	n := 0
	for _, note := range b.notes {
		if note.xid == 0 && now.Sub(note.at) >= barrierGrace {
			n++
		}
	}
	return n
}

// pass gives a mark to the notes that are ripe, and lets pass what was waiting for transactions older than oldest.
func (b *barrier) pass(xid, oldest int64, now time.Time) {
	for i := range b.notes {
		if n := &b.notes[i]; n.xid == 0 && now.Sub(n.at) >= barrierGrace {
			n.xid = xid
		}
	}
	// From the newest on: after a restore numbers of transactions may begin again below those of old marks.
	for i := len(b.notes) - 1; i >= 0; i-- {
		if n := b.notes[i]; n.xid > 0 && n.xid < oldest {
			b.passed = max(b.passed, n.given)
			b.notes = b.notes[i+1:]
			return
		}
	}
}

// HeldBack says what keeps rows back under Config.CommitOrder, or nil when nothing does; it counts up to lagBound rows. A
// transaction in any database of the server can: numbers of transactions are the server's. The role needs
// pg_read_all_stats to see whose it is.
func (src *Source) HeldBack(ctx context.Context) (*core.Holdup, error) {
	if src.order == nil {
		return nil, ctx.Err()
	}
	passed, err := src.passed(ctx)
	if err != nil {
		return nil, err
	}
	var h core.Holdup
	err = src.run(ctx, src.work, "held back", func(q querier) error {
		waiting, err := src.count(ctx, q, passed, lagBound)
		if h.Rows = min(waiting.rows, lagBound); err != nil || h.Rows == 0 {
			return err
		}
		var since int64
		err = q.QueryRow(ctx, holder).Scan(&h.Holder, &since)
		h.For = microseconds(since)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	if err != nil || h.Rows == 0 {
		return nil, err
	}
	return &h, nil
}

// holder finds the oldest transaction that has written, be it of a session or prepared for a two-phase commit.
const holder = `SELECT who, greatest(extract(epoch FROM clock_timestamp() - since) * 1000000, 0)::bigint FROM (
		SELECT format('process %s, user %s, database %s, application %s, %s', pid, usename, datname, quote_ident(application_name), state) AS who, xact_start AS since, backend_xid AS xid
		FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
		UNION ALL SELECT format('prepared transaction %s, user %s, database %s', quote_literal(gid), owner, database), prepared, transaction FROM pg_prepared_xacts
	) t ORDER BY age(xid) DESC LIMIT 1`
