package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/connectd/connectd/core"
)

// barrierFresh is how long what was seen is taken for the present: partitions that are read at the same time share a look.
const barrierFresh = 5 * time.Millisecond

// barrier keeps rows back until every transaction that could still commit an earlier one has ended.
//
// An INSERT takes a RowExclusiveLock on its table before it draws a number for its row, and the transaction keeps it to
// its end; when the lock is gone, whatever was committed is visible. A look reads the last number that was drawn, and
// then who holds such a lock. Who has none can only draw higher numbers, so whoever is seen with one for the first time
// has drawn none up to the number of the look before. The lowest of those numbers, of all that hold the lock now, is how
// far the rows are there. As each transaction keeps its number, one that follows another holds nothing back that the
// other did not: however many overlap, rows go on.
type barrier struct {
	table, sequence string
	turn            chan struct{} // has an element while somebody looks

	mu      sync.Mutex
	looked  time.Time // when the last look began
	server  time.Time // when the server of that look was started
	given   int64     // the last number drawn by then
	writers map[string]writer
	passed  int64
}

// writer is a transaction that may insert rows. The rows up to after are none of its.
type writer struct {
	after int64
	since time.Time // when it was first seen
}

// look is what was seen at one moment.
type look struct {
	server time.Time
	given  int64
	// holders are the virtual transactions that hold the lock. One that is prepared for a two-phase commit keeps its name
	// until the server starts again: see reborn.
	holders []string
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
	return &barrier{table: s.table.quoted(), sequence: *name, turn: make(chan struct{}, 1), passed: math.MinInt64}, nil
}

// passed is the highest number up to which all rows are there, for whoever reads them after it returns. maxAge is how old
// a look may be. One call looks at a time; no call waits for another longer than ctx lasts.
func (src *Source) passed(ctx context.Context, maxAge time.Duration) (int64, error) {
	b := src.order
	called := time.Now()
	if n, fresh := b.known(called.Add(-maxAge)); fresh {
		return n, nil
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return 0, fmt.Errorf("postgres: commit order: wait for another look: %w", ctx.Err())
	}
	if n, fresh := b.known(called.Add(-maxAge)); fresh {
		return n, nil
	}
	began := time.Now()
	var l look
	err := src.run(ctx, src.work, "commit order", func(q querier) (err error) {
		l, err = b.look(ctx, q)
		return err
	})
	if err != nil {
		return 0, err
	}
	return b.take(l, began), nil
}

// known is how far the rows were there at the last look, and whether that began at a time or later.
func (b *barrier) known(from time.Time) (int64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.passed, !b.looked.IsZero() && !b.looked.Before(from)
}

// holding says whether a number was drawn that has not passed.
func (b *barrier) holding() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.given != b.passed
}

// writing is the condition for rows l of pg_locks that are locks of transactions that may insert into table $1. Whoever
// inserts has this very lock, also when it has a stronger one beside it. Vacuum and the making of indexes have others.
const writing = `l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted AND l.relation = (SELECT to_regclass($1::text)::oid)
	AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())`

// look asks for the number first and then for the locks. It is one statement, since a sequence and locks do not keep to
// its snapshot: the lateral join makes the server read one after the other. Locks are not read when there is no new
// number, which is what a table mostly has to say.
func (b *barrier) look(ctx context.Context, q querier) (l look, err error) {
	passed, _ := b.known(time.Time{})
	rows, err := q.Query(ctx, `SELECT n.given, pg_postmaster_start_time(), w.who
		FROM (SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END AS given FROM `+b.sequence+` OFFSET 0) n
		LEFT JOIN LATERAL (SELECT l.virtualtransaction AS who FROM pg_locks l WHERE n.given <> $2::bigint AND `+writing+` OFFSET 0) w ON true`,
		b.table, passed)
	if err != nil {
		return l, err
	}
	var who *string
	_, err = pgx.ForEachRow(rows, []any{&l.given, &l.server, &who}, func() error {
		if who != nil {
			l.holders = append(l.holders, *who)
		}
		return nil
	})
	return l, err
}

// take notes what was seen and says how far the rows are there. A map of writers has at most as many as the server has
// connections and prepared transactions.
func (b *barrier) take(l look, began time.Time) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	after, before := b.given, b.passed
	if !l.server.Equal(b.server) || l.given < b.given {
		// The first look, or at another server, or at one that was started again, or somebody has set the sequence back:
		// what was seen before says nothing about who is there now.
		after, before, b.writers = math.MinInt64, math.MinInt64, nil
	}
	writers := map[string]writer{}
	passed := l.given
	for _, who := range l.holders {
		w, known := b.writers[who]
		if !known {
			w = writer{after: after, since: began}
			if reborn(who) {
				w.after = before
			}
		}
		writers[who] = w
		passed = min(passed, w.after)
	}
	b.looked, b.server, b.given, b.writers, b.passed = began, l.server, l.given, writers, passed
	return passed
}

// reborn says that a holder is a prepared transaction that the server found when it started, so it may be one that was seen
// before under another name. (PostgreSQL before 13.5 and 14.1 names all prepared ones so.)
func reborn(who string) bool { return strings.HasPrefix(who, "-1/") }

// blockers are the writers that hold back the next row, and since when the first of them was seen.
func (b *barrier) blockers() (who []string, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, w := range b.writers {
		if w.after > b.passed {
			continue
		}
		if who = append(who, name); since.IsZero() || w.since.Before(since) {
			since = w.since
		}
	}
	return who, since
}

// HeldBack says what keeps rows back under Config.CommitOrder, or nil when nothing does; it counts up to lagBound rows.
// Of several transactions it names the one that began first. The role needs pg_read_all_stats to see what it is doing and
// since when; without that For is how long it has been seen.
func (src *Source) HeldBack(ctx context.Context) (*core.Holdup, error) {
	if src.order == nil {
		return nil, ctx.Err()
	}
	passed, err := src.passed(ctx, barrierFresh)
	if err != nil {
		return nil, err
	}
	who, seen := src.order.blockers()
	if len(who) == 0 {
		return nil, nil
	}
	h := core.Holdup{After: passed}
	err = src.run(ctx, src.work, "held back", func(q querier) error {
		waiting, err := src.count(ctx, q, passed, lagBound)
		if h.Rows = min(waiting.rows, lagBound); err != nil || h.Rows == 0 {
			return err
		}
		h.Holder, h.For, err = src.order.holder(ctx, q, who)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) { // it has ended since
		return nil, nil
	}
	if err != nil || h.Rows == 0 {
		return nil, err
	}
	if h.For == 0 {
		h.For = time.Since(seen)
	}
	return &h, nil
}

// holder names the one of some writers, or of all for nil, that began first, and how long it has run; 0 when the role may
// not see that.
func (b *barrier) holder(ctx context.Context, q querier, who []string) (string, time.Duration, error) {
	var name string
	var micros int64
	err := q.QueryRow(ctx, holder, b.table, who).Scan(&name, &micros)
	return name, microseconds(micros), err
}

// holder: table, names or NULL. A prepared transaction has no process; its locks tell its number.
const holder = `SELECT CASE WHEN l.pid IS NULL THEN format('prepared transaction %s, user %s', quote_literal(p.gid), p.owner)
		ELSE concat_ws(', ', 'process ' || l.pid, 'user ' || a.usename::text, 'application ' || quote_ident(a.application_name), a.state) END
		|| coalesce(', since ' || to_char(t.since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), ''),
		coalesce(greatest(extract(epoch FROM clock_timestamp() - t.since) * 1000000, 1)::bigint, 0)
	FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
	LEFT JOIN LATERAL (SELECT p.gid, p.owner, p.prepared FROM pg_locks x JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
		WHERE x.virtualtransaction = l.virtualtransaction AND x.pid IS NULL LIMIT 1) p ON l.pid IS NULL
	CROSS JOIN LATERAL (SELECT coalesce(a.xact_start, p.prepared) AS since) t
	WHERE ` + writing + ` AND ($2::text[] IS NULL OR l.virtualtransaction = ANY ($2::text[])) ORDER BY t.since, l.pid LIMIT 1`
