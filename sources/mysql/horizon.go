package mysql

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"sync"
	"time"

	"github.com/connectd/connectd/core"
)

// horizon numbers applications' transactions by time, in microseconds of this process's monotonic clock, which no
// correction of a clock moves. A transaction takes numbers for its rows when it inserts, and commits later: until it has
// ended, rows below those that are visible may appear.
//
// A user with the PROCESS privilege sees which transactions have written and still run. They are looked at once a second
// at most, since the server stops everything for a moment to list them. Others know only how long a transaction may last.
type horizon struct {
	base           time.Time
	maxTransaction time.Duration

	looking sync.Mutex // held by the one who looks

	mu      sync.Mutex
	blind   bool // not allowed to see
	looked  bool
	next    time.Duration            // no look before that
	wait    time.Duration            // what it was after the latest try
	at      time.Duration            // of the latest look
	before  time.Duration            // of the look before that
	running map[string]time.Duration // transaction → not begun before
}

func newHorizon(maxTransaction time.Duration) *horizon {
	return &horizon{base: time.Now(), maxTransaction: cmp.Or(maxTransaction, defaultMaxTransaction)}
}

// lookEvery is how often running transactions are looked at. While others look so often that the list is theirs, it is
// tried less and less often, down to lookSeldom: many sources would keep it from each other.
const (
	lookEvery  = time.Second
	lookSeldom = 16 * time.Second
)

func (h *horizon) now() time.Duration { return time.Since(h.base) }

// oldest is called before a page's snapshot: rows that the snapshot will not show belong to transactions with this number
// or a higher one. While somebody else looks, or the server does not answer, the last answer will do: it only lags behind.
func (h *horizon) oldest(ctx context.Context, db *sql.DB, t texts) time.Duration {
	if h.due() && h.looking.TryLock() {
		h.look(ctx, db, t)
		h.looking.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.blind:
		return h.now() - h.maxTransaction
	case !h.looked:
		return 0
	}
	oldest := h.at
	for _, begun := range h.running {
		oldest = min(oldest, begun)
	}
	return oldest
}

func (h *horizon) due() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.blind && h.now() >= h.next
}

// look lists what runs. A transaction that is there for the first time has taken its first number after the look before,
// unless it was just then between taking it and using it; so the one before that counts.
func (h *horizon) look(ctx context.Context, db *sql.DB, t texts) {
	now := h.now()
	ids, fresh, err := running(ctx, db, t)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wait = min(max(2*h.wait, lookEvery), lookSeldom)
	if err != nil || fresh {
		h.wait = lookEvery
	}
	h.next = h.now() + h.wait
	switch {
	case number(err) == accessDenied:
		h.blind = true
		return
	case err != nil || !fresh:
		return
	}
	running := make(map[string]time.Duration, len(ids))
	for _, id := range ids {
		begun, known := h.running[id]
		if !known {
			begun = h.before
		}
		running[id] = begun
	}
	h.before, h.at, h.running, h.looked = h.at, now, running, true
}

// running lists the transactions that have written. The server makes the list anew only when nobody has asked for it for
// a tenth of a second; else it gives the old one, for as long as that goes on. The list is fresh when this very statement
// is in it, which it is as that of a transaction of its own, begun by reading something.
func running(ctx context.Context, db *sql.DB, t texts) (ids []string, fresh bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, false, err
	}
	defer tx.Rollback()
	var leases int
	if err := tx.QueryRowContext(ctx, t.fill(`SELECT COUNT(*) FROM {lease} WHERE tbl = ''`)).Scan(&leases); err != nil {
		return nil, false, err
	}
	me := `COALESCE(trx_query LIKE '%` + rand.Text() + `%', FALSE)`
	err = collect(ctx, tx, func(rows *sql.Rows) error {
		var id string
		var wrote, me bool
		if err := rows.Scan(&id, &wrote, &me); err != nil {
			return err
		}
		fresh = fresh || me
		if wrote {
			ids = append(ids, id)
		}
		return nil
	}, `SELECT trx_id, trx_rows_modified > 0, `+me+` FROM information_schema.innodb_trx WHERE trx_rows_modified > 0 OR `+me)
	return ids, fresh, err
}

// of gives a page's horizon, when the page has been read; oldest is from before.
func (h *horizon) of(oldest time.Duration) *core.Horizon {
	return &core.Horizon{Oldest: oldest.Microseconds(), Next: h.now().Microseconds() + 1}
}
