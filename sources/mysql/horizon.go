package mysql

import (
	"cmp"
	"context"
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

	mu      sync.Mutex
	blind   bool // not allowed to see
	looked  bool
	at      time.Duration            // of the latest look
	before  time.Duration            // of the look before that
	running map[uint64]time.Duration // transaction → not begun before
}

func newHorizon(maxTransaction time.Duration) *horizon {
	return &horizon{base: time.Now(), maxTransaction: cmp.Or(maxTransaction, defaultMaxTransaction)}
}

// lookEvery is how often running transactions are looked at.
const lookEvery = time.Second

func (h *horizon) now() time.Duration { return time.Since(h.base) }

// oldest is called before a page's snapshot: rows that the snapshot will not show belong to transactions with this number
// or a higher one. When the server does not answer, the last answer is good enough: it only lags behind.
func (h *horizon) oldest(ctx context.Context, db *sql.DB) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); !h.blind && (!h.looked || now-h.at >= lookEvery) {
		h.look(ctx, db, now)
	}
	if h.blind || !h.looked {
		return h.now() - h.maxTransaction
	}
	oldest := h.at
	for _, begun := range h.running {
		oldest = min(oldest, begun)
	}
	return oldest
}

// look lists what runs. A transaction that is there for the first time has taken its first number after the look before,
// unless it was just then between taking it and using it; so the one before that counts.
func (h *horizon) look(ctx context.Context, db *sql.DB, now time.Duration) {
	running := map[uint64]time.Duration{}
	err := collect(ctx, db, func(rows *sql.Rows) error {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		begun, known := h.running[id]
		if !known {
			begun = h.before
		}
		running[id] = begun
		return nil
	}, `SELECT trx_id FROM information_schema.innodb_trx WHERE trx_rows_modified > 0`)
	switch {
	case number(err) == accessDenied:
		h.blind = true
	case err == nil:
		h.before, h.at, h.running, h.looked = h.at, now, running, true
	}
}

// of gives a page's horizon, when the page has been read; oldest is from before.
func (h *horizon) of(oldest time.Duration) *core.Horizon {
	return &core.Horizon{Oldest: oldest.Microseconds(), Next: h.now().Microseconds() + 1}
}
