package postgres

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

const (
	lookLimit = 5 * time.Second      // for one look
	wakeGap   = 5 * time.Millisecond // between two wake-ups by NOTIFY: many commits are one reason to read
)

// lookout is the waiter's own.
type lookout struct {
	pause time.Duration // until the next look
	woken time.Time     // by NOTIFY
}

// Wait returns when rows may have been inserted that no fetch has read. One look serves all partitions: it asks for the
// rows above the highest that was read, often after there were some and seldom after a while of silence. Rows that
// commit late, below that, are found by the engine's own polls. Where rows are announced, it looks seldom. While the
// server cannot be asked nothing is new: the next fetch will say why.
func (src *Source) Wait(ctx context.Context) error {
	for {
		var announced <-chan struct{}
		wait := max(src.last.pause, src.poll.Min)
		if src.listen != nil {
			announced = src.listen.wake
			if src.listen.up.Load() && (src.order == nil || !src.order.holding()) {
				wait = src.poll.Max
			}
		}
		timer := time.NewTimer(wait - rand.N(wait/4+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-announced:
			timer.Stop()
			if err := pause(ctx, wakeGap-time.Since(src.last.woken)); err != nil {
				return err
			}
			src.last.woken = time.Now()
			if src.order == nil {
				return nil
			}
			wait = src.poll.Min // the row may have to wait for an older transaction
		case <-timer.C:
		}
		fresh, err := src.look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return pause(ctx, time.Second)
		case fresh:
			src.last.pause = 0
			return nil
		}
		src.last.pause = min(2*wait, src.poll.Max)
	}
}

// look says whether there is a row above those that were read, and in commit order one that need not wait.
func (src *Source) look(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	upTo := int64(math.MaxInt64)
	if src.order != nil {
		var err error
		if upTo, err = src.passed(ctx, 0); err != nil {
			return false, err
		}
	}
	var highest pgtype.Int8
	err := src.work.QueryRow(ctx, src.text.fill(`SELECT max({order})::bigint FROM {table} WHERE {order} > $1::bigint AND {order} <= $2::bigint`), src.seen.Load(), upTo).Scan(&highest)
	if err != nil || !highest.Valid {
		return false, err
	}
	src.read(highest.Int64)
	return true, nil
}

// read notes that rows up to seq are known.
func (src *Source) read(seq int64) {
	for {
		seen := src.seen.Load()
		if seq <= seen || src.seen.CompareAndSwap(seen, seq) {
			return
		}
	}
}
