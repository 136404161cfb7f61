//go:build linux

package bench

import (
	"context"
	"database/sql"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// drainedBeside is drained beside the cleaning of bookRows rows.
func drainedBeside() int { return *bookRows * 3 / 10 }

// cleaned is a table of bookRows rows that are published since long.
type cleaned struct {
	setup
	db *sql.DB
	// first is the seq of the first row.
	first int
	// fill inserts a backlog of drainedBeside rows in one transaction. That is done before the daemon starts: the end of so large
	// a transaction keeps every other one of the server from ending, and the locks of all.
	fill func()
	// touch waits for whoever has locked the row of that seq.
	touch func(ctx context.Context, seq int) error
	drop  func()
}

// The connector's sections without a cleaner and with one.
const (
	neverCleaned = "retention: {published: keep}"
	cleanedByDay = "retention: {published: 24h}"
)

// benchmarkClean drains a backlog with the cleaner at work, and before and after that without, and lets the cleaner go on
// until it has removed the old rows. In the first round only.
func (r *report) benchmarkClean(b *testing.B, name string, fresh func(b *testing.B, sections string) cleaned) {
	once(b, func() {
		before, wait := r.drainWithoutCleaner(b, fresh)
		with := r.drainBesideCleaner(b, name, fresh)
		after, waitAfter := r.drainWithoutCleaner(b, fresh)
		without := (before + after) / 2
		r.add("  and while a backlog is drained without the cleaner", "waits "+name, "ms", goal{}, milliseconds(max(wait, waitAfter)))
		r.add(name+" drain beside the cleaner / without", "", "", atLeast(0.8), with/without)
		r.add("  rate", "beside the cleaner of "+name, "rows/s", goal{}, with)
		r.add("  rate without it", "without the cleaner of "+name, "rows/s", goal{}, without)
	})
}

// What the daemon has done, in its metrics.
const (
	settledRows = `connectd_settled_rows_total{connector="bench",state="published"}`
	cleanedRows = `connectd_cleaned_rows_total{connector="bench",state="published"}`
)

func (r *report) drainWithoutCleaner(b *testing.B, fresh func(*testing.B, string) cleaned) (rate float64, wait time.Duration) {
	c := fresh(b, neverCleaned)
	defer c.drop()
	c.fill()
	run := c.run(b)
	run.await(connectorRuns, 0)
	var head atomic.Int64 // stays 0
	stop := c.touching(b, &head)
	rate = c.drain(b, &head)
	_, wait = stop()
	run.stop()
	return rate, wait
}

// drain says how quickly the backlog is drained, in rows a second, from the first hundredth on; head is kept at how many rows
// are cleaned.
func (c cleaned) drain(b *testing.B, head *atomic.Int64) float64 {
	var begun, ended time.Time
	var first float64
	rows := float64(drainedBeside())
	untilWithin(b, long(drainedBeside()), "the backlog is drained", 10*time.Millisecond, func() bool {
		at := c.metrics(b, "connectd_")
		head.Store(int64(at[cleanedRows]))
		ended = time.Now()
		if begun.IsZero() && at[settledRows] >= rows/100 {
			begun, first = ended, at[settledRows]
		}
		return at[settledRows] >= rows
	})
	return (rows - first) / ended.Sub(begun).Seconds()
}

func (r *report) drainBesideCleaner(b *testing.B, name string, fresh func(*testing.B, string) cleaned) float64 {
	c := fresh(b, cleanedByDay)
	defer c.drop()
	c.fill()
	run := c.run(b)
	run.await(connectorRuns, 0)
	var head atomic.Int64
	stop := c.touching(b, &head)
	begun := time.Now()
	rate := c.drain(b, &head)
	beside := head.Load()
	if beside == 0 {
		b.Fatal("nothing was cleaned while the backlog was drained")
	}
	// A row that is locked when its batch goes stays for a quarter of an hour: touching keeps a few.
	untilWithin(b, 3*long(*bookRows), "the old rows are cleaned", 20*time.Millisecond, func() bool {
		head.Store(int64(c.metric(b, cleanedRows)))
		return head.Load() >= int64(*bookRows*99/100)
	})
	took := time.Since(begun)
	touches, longestWait := stop()
	r.add(name+", rows locked by the cleaner for", "longest, at most", "ms", atMost(100), longest(c.metrics(b, "connectd_clean_duration_seconds_bucket"))*1000)
	r.add("  the longest that another session waited for a row, or the file", "waits "+name, "ms", goal{}, milliseconds(longestWait))
	r.add("  times it looked", "touches "+name, "", goal{}, float64(touches))
	r.add("  rows cleaned", "rate "+name, "rows/s", goal{}, float64(head.Load())/took.Seconds())
	r.add("  of them while the backlog was drained", "clean "+name, "rows", goal{}, float64(beside))
	run.stop()
	var left, counted int
	if err := c.db.QueryRow(`SELECT (SELECT count(*) FROM outbox), (SELECT sum(count) FROM connectd_ledger)`).Scan(&left, &counted); err != nil {
		b.Fatal(err)
	}
	if left+counted != drainedBeside()+*bookRows || counted > *bookRows {
		b.Fatalf("%d rows are left and %d were counted", left, counted)
	}
	return rate
}

// touching lets a session touch rows that the cleaner is about to remove, one after the other, a few milliseconds apart;
// head is how many are gone. When it is stopped it says how often it did, and how long it waited at most.
func (c cleaned) touching(b *testing.B, head *atomic.Int64) (stop func() (touches int, most time.Duration)) {
	const ahead, pause = 1000, 3 * time.Millisecond
	ctx, cancel := context.WithCancel(b.Context())
	var touches int
	var most time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			err := c.touch(ctx, c.first+int(head.Load())+rand.IntN(ahead))
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				b.Errorf("touch a row: %v", err)
				return
			}
			touches, most = touches+1, max(most, time.Since(began))
			time.Sleep(pause)
		}
	})
	return func() (int, time.Duration) {
		cancel()
		wg.Wait()
		return touches, most
	}
}

// longest is the bound of the last of a histogram's buckets that has something in it.
func longest(buckets map[string]float64) float64 {
	most := 0.0
	for n := range maps.Values(buckets) {
		most = max(most, n)
	}
	bound := 0.0
	for name, n := range buckets {
		_, text, _ := strings.Cut(name, `le="`)
		le, err := strconv.ParseFloat(strings.TrimSuffix(text, `"}`), 64)
		if err == nil && n == most && (bound == 0 || le < bound) {
			bound = le
		}
	}
	return bound
}
