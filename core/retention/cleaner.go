// Package retention removes rows and receipts whose time has passed, beside the engine and without being in its way: in
// small batches whose size follows from the time they take, with pauses between them.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/connectd/connectd/core"
)

// Cleaner cleans one outbox table. It works only while its owner holds the lease of partition 0, so that one worker at a
// time cleans, and another one goes on when it is gone. What it knows is in memory: one that starts again looks at the
// whole table once.
type Cleaner struct {
	Books     core.Books
	Owner     string
	Retention core.Retention
	Log       *slog.Logger
	Observer  Observer

	rows     *diary
	receipts sweep
	batch    int  // rows removed by a call at most
	removing bool // the last call removed some
	receipt  bool // it is the receipts' turn
	// What went wrong with either lately.
	rowTrouble, receiptTrouble trouble
}

// trouble is calls that failed in a row.
type trouble struct {
	calls int
	told  string // the error that was logged
	last  time.Time
}

// Observer is told what a cleaner did. One goroutine calls it.
type Observer interface {
	// Cleaned is a batch that was removed, by state, and how long it locked rows.
	Cleaned(removed map[core.State]int, held time.Duration)
	// Forgotten is receipts that were removed, by where their row was.
	Forgotten(removed map[core.RowPlace]int)
	// Unknown is how many receipts there are of no known row, when all have been looked at; 0 when another worker cleans.
	Unknown(receipts int)
}

const (
	batchFirst = 100
	// A batch is no smaller than batchMin: where the log of a busy server is slow, its commit alone takes longer than
	// heldMost, whatever its size, and batches of a few rows would never catch up. It is no larger than batchMax: one of
	// 700 rows was seen to take 62 ms on MariaDB.
	batchMin = 50
	batchMax = 500
	// A batch that locks rows for longer than heldMost makes the next one smaller, one shorter than heldLeast larger: far
	// below what a worker's step would feel as a wait.
	heldMost  = 40 * time.Millisecond
	heldLeast = 15 * time.Millisecond
	// The cleaner rests for so many times what a batch took, so that it takes a small part of what the database can do.
	restFactor = 4
	restMin    = 5 * time.Millisecond
	restMax    = 5 * time.Second

	callLimit   = 15 * time.Second // for one batch
	standBy     = 5 * time.Second  // between looks whether the lease is ours
	idleMost    = time.Minute      // the longest sleep
	errorFirst  = time.Second      // pause after a call that failed, doubled up to errorLast
	errorLast   = time.Minute
	badWait     = time.Minute     // how long a batch is left alone that could not be removed
	calm        = 5 * time.Minute // without an error, until it counts as over
	sweepEvery  = time.Minute     // between two walks through the receipts, and
	sweepFactor = 20              // so many times what the last one took
)

// Run cleans until ctx is done.
func (c *Cleaner) Run(ctx context.Context) {
	c.rows, c.batch = newDiary(), batchFirst
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(c.step(ctx))
	}
}

// step does one batch and says how long to rest.
func (c *Cleaner) step(ctx context.Context) time.Duration {
	begun := time.Now()
	first, last, next := -1, -1, begun.Add(idleMost)
	if !c.Retention.KeepsRows() {
		first, last, next = c.rows.due(begun)
	}
	sweep := !c.receipts.next.After(begun)
	c.receipt = sweep && (first < 0 || !c.receipt)
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	switch {
	case c.receipt:
		err := c.cleanReceipts(ctx)
		return c.rest(ctx, &c.receiptTrouble, err, time.Since(begun))
	case first >= 0:
		err := c.cleanRows(ctx, first, last)
		return c.rest(ctx, &c.rowTrouble, err, time.Since(begun))
	default:
		if c.receipts.next.Before(next) {
			next = c.receipts.next
		}
		return min(max(next.Sub(begun), restMin), idleMost)
	}
}

// rest says how long to rest after a batch. An error is logged when it is another than the last.
func (c *Cleaner) rest(ctx context.Context, t *trouble, err error, took time.Duration) time.Duration {
	switch {
	case err == nil:
		t.calls = 0
		if t.told != "" && time.Since(t.last) > calm { // a row that cannot be removed fails once in a while
			c.Log.Info("cleaning works again")
			t.told = ""
		}
		return min(max(restFactor*took, restMin), restMax)
	case errors.Is(err, core.ErrLeaseNotOwned):
		c.receipts = sweep{}
		c.Observer.Unknown(0)
		return standBy
	case errors.Is(ctx.Err(), context.Canceled):
		return 0
	}
	t.last = time.Now()
	if t.told != err.Error() {
		t.told = err.Error()
		c.Log.Warn("cleaning failed, trying again", "error", err)
	}
	pause := min(errorFirst<<min(t.calls, 10), errorLast)
	t.calls++
	return pause
}

// cleanRows cleans the beginning of a stretch. Rows that cannot be removed are passed over for a while: they do not keep
// the others from it.
func (c *Cleaner) cleanRows(ctx context.Context, first, last int) error {
	req := core.CleanRequest{Owner: c.Owner, Retention: c.Retention, After: c.rows.after(first), UpTo: c.rows.spans[last].upTo, Limit: batchMax, Most: c.batch}
	if c.removing {
		req.Limit = c.batch
	}
	done, err := c.Books.Clean(ctx, req)
	if err != nil {
		if !errors.Is(err, core.ErrLeaseNotOwned) {
			c.batch = max(c.batch/2, batchMin)
			if done.Looked > 0 {
				c.rows.looked(first, last, done.Last, false, false, time.Now().Add(badWait), time.Time{})
			}
		}
		return err
	}
	// A row that is not there yet can end no earlier than a pending one. Rows go a little later than they could, so that
	// many go together.
	_, fresh := c.Retention.Judge(core.Kept{State: core.Pending})
	slack := min(max(fresh/64, time.Second), 15*time.Minute)
	again := done.Again + slack
	switch {
	case done.Left == 0: // rows may still commit here
		again = max(fresh+slack, idleMost)
	case done.Again == 0: // some had to stay for the next batch
		again = 0
	}
	now := time.Now()
	c.rows.looked(first, last, done.Last, done.Looked < req.Limit, done.Left == 0, now.Add(again), now.Add(fresh+slack))
	removed := 0
	for _, n := range done.Removed {
		removed += n
	}
	c.removing = removed > 0
	if c.removing {
		c.Observer.Cleaned(done.Removed, done.Held)
	}
	switch {
	case done.Held > heldMost:
		c.batch = max(c.batch/2, batchMin)
	case done.Held < heldLeast && removed == c.batch:
		c.batch = min(c.batch*3/2, batchMax)
	}
	return nil
}

// sweep is a walk through the receipts.
type sweep struct {
	next    time.Time // when the next batch is due
	begun   time.Time // zero: none is under way
	after   core.ReceiptKey
	unknown int
}

func (c *Cleaner) cleanReceipts(ctx context.Context) error {
	s := &c.receipts
	if s.begun.IsZero() {
		s.begun = time.Now()
	}
	req := core.ReceiptsRequest{Owner: c.Owner, Retention: c.Retention.Receipts, After: s.after, Limit: c.batch}
	done, err := c.Books.CleanReceipts(ctx, req)
	if err != nil {
		return err
	}
	s.after, s.unknown = done.Last, s.unknown+len(done.Unknown)
	c.Observer.Forgotten(done.Removed)
	if n := done.Removed[core.RowUnknown]; n > 0 {
		c.Log.Warn("receipts of commands that no table of the database knew were removed, since their retention has passed", "receipts", n)
	}
	if done.Held > heldMost {
		c.batch = max(c.batch/2, batchMin)
	}
	if done.Looked < req.Limit {
		c.Observer.Unknown(s.unknown)
		*s = sweep{next: time.Now().Add(max(sweepEvery, sweepFactor*time.Since(s.begun)))}
	}
	return nil
}
