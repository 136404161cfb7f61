package sinktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

const (
	patience = 30 * time.Second // with what should work
	grace    = 2 * time.Second  // how soon after its context's end a call must be back; generous, for busy machines
)

// trial is one test with its sink.
type trial struct {
	testing.TB
	Harness
	limits core.Limits
	closed bool
	seq    int64
	// Of this trial; the suite's own tests have less of them.
	patience, grace time.Duration
}

func newTrial(t testing.TB, h Harness) *trial {
	t.Helper()
	if h.Sink == nil || h.Settings == nil || h.Received == nil {
		t.Fatal("the harness needs a Sink, Settings and Received")
	}
	c := &trial{TB: t, Harness: h, patience: patience, grace: grace}
	t.Cleanup(func() {
		if !c.closed {
			c.close()
		}
	})
	return c
}

// within returns a context that ends after d or with the test.
func (c *trial) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	c.Cleanup(cancel)
	return ctx
}

// describe returns the description and keeps its limits.
func (c *trial) describe() core.Description {
	c.Helper()
	d, err := c.Sink.Describe(c.within(c.patience))
	if err != nil {
		c.Fatalf("Describe: %v", err)
	}
	c.limits = d.Limits
	return d
}

// configure gives the sink its good settings.
func (c *trial) configure() {
	c.Helper()
	c.describe()
	diagnostics, err := c.Sink.Configure(c.within(c.patience), c.Settings)
	if err != nil {
		c.Fatalf("Configure: %v", err)
	}
	if refused(diagnostics) {
		c.Fatalf("the harness's Settings are refused: %+v", diagnostics)
	}
}

func (c *trial) open() {
	c.Helper()
	c.configure()
	if err := c.Sink.Open(c.within(c.patience)); err != nil {
		c.Fatalf("Open: %v", err)
	}
}

func (c *trial) close() {
	c.Helper()
	c.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	if err := c.Sink.Close(ctx); err != nil {
		c.Errorf("Close: %v", err)
	}
}

// refused reports whether a diagnostic is more than a warning.
func refused(diagnostics []core.Diagnostic) bool {
	return slices.ContainsFunc(diagnostics, func(d core.Diagnostic) bool { return !d.Warning })
}

// deliver calls the sink as the engine does: with a batch that is lent for the call only. It checks what must be true
// of every answer, whatever happened.
func (c *trial) deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	c.Helper()
	loan := lend(batch)
	outcomes, err := c.Sink.Deliver(ctx, loan.records)
	if err := loan.unchanged(batch); err != nil {
		c.Errorf("Deliver changed its batch: %v", err)
	}
	loan.takeBack()
	if err != nil {
		c.noSecret("an error of Deliver", err.Error())
		return nil, err
	}
	if len(outcomes) != len(batch) {
		c.Fatalf("Deliver gave %d outcomes for %d records", len(outcomes), len(batch))
	}
	failed := map[string]int{}
	for i, o := range outcomes {
		c.sane(i, o)
		if !batch[i].Keyed {
			continue
		}
		if at, behind := failed[batch[i].Key]; behind && o.Kind == core.Delivered {
			c.Errorf("record %d was delivered although record %d of the same key was not", i, at)
		} else if !behind && o.Kind != core.Delivered {
			failed[batch[i].Key] = i
		}
	}
	return outcomes, nil
}

// sane checks one outcome by itself.
func (c *trial) sane(i int, o core.Outcome) {
	c.Helper()
	switch {
	case o.Kind == core.Unspecified || o.Kind > core.NotAttempted:
		c.Errorf("outcome %d has no valid kind (%d)", i, o.Kind)
	case o.Scope > core.ScopeSink:
		c.Errorf("outcome %d has no valid scope (%d)", i, o.Scope)
	case o.Unknown && o.Kind != core.Retryable:
		c.Errorf("outcome %d is %v and unknown; only retryable can be unknown", i, o.Kind)
	case o.Completed != (o.Kind == core.Delivered && c.Completes):
		c.Errorf("outcome %d is %v and completed: %v; the harness has Completes: %v", i, o.Kind, o.Completed, c.Completes)
	case o.RetryAfter < 0:
		c.Errorf("outcome %d is to be retried after %v", i, o.RetryAfter)
	case o.Kind != core.Delivered && o.Kind != core.NotAttempted && (o.Code == "" || o.Message == ""):
		c.Errorf("outcome %d is %v without saying why: code %q, message %q", i, o.Kind, o.Code, o.Message)
	}
	c.noSecret("an outcome", o.Code+" "+o.Message)
}

func (c *trial) noSecret(where, text string) {
	c.Helper()
	for _, secret := range c.Secrets {
		if secret != "" && strings.Contains(text, secret) {
			c.Errorf("%s shows a secret: %s", where, text)
		}
	}
}

// deliverAll delivers a batch in which every record must be delivered.
func (c *trial) deliverAll(batch []core.Record) {
	c.Helper()
	outcomes, err := c.deliver(c.within(c.patience), batch)
	if err != nil {
		c.Fatalf("Deliver of %d records: %v", len(batch), err)
	}
	for i, o := range outcomes {
		if o.Kind != core.Delivered {
			c.Fatalf("record %d of %d is %s", i, len(batch), show(o))
		}
	}
}

// persist delivers records in batches within the sink's limits and sends again, in order, what was not delivered, until
// everything is.
func (c *trial) persist(records []core.Record) {
	c.Helper()
	ctx := c.within(c.patience)
	for len(records) > 0 {
		n := c.fits(records)
		outcomes, err := c.deliver(ctx, records[:n])
		if ctx.Err() != nil {
			c.Fatalf("%d records could not be delivered in %v: %v", len(records), c.patience, err)
		}
		var again []core.Record
		for i, o := range outcomes {
			if o.Kind == core.Permanent {
				c.Fatalf("record %d is %s", i, show(o))
			}
			if o.Kind != core.Delivered {
				again = append(again, records[i])
			}
		}
		if err != nil {
			again = slices.Clone(records[:n])
		}
		if len(again) > 0 {
			time.Sleep(20 * time.Millisecond) // a caller's backoff
		}
		for i := range again {
			again[i].Deliveries++
		}
		records = slices.Concat(again, records[n:])
	}
}

// fits says how many of the first records make a batch within the limits, at least one.
func (c *trial) fits(records []core.Record) int {
	bytes := int64(0)
	for i := range records {
		bytes += int64(records[i].Size())
		if i > 0 && (c.limits.MaxRecords > 0 && i >= c.limits.MaxRecords || c.limits.MaxBytes > 0 && bytes > c.limits.MaxBytes) {
			return i
		}
	}
	return len(records)
}

// arrived returns the ids of what was received, repetitions of one id dropped.
func (c *trial) arrived() []string {
	c.Helper()
	var ids []string
	seen := map[string]bool{}
	for _, r := range c.Received(c) {
		if !seen[r.ID] {
			ids = append(ids, r.ID)
		}
		seen[r.ID] = true
	}
	return ids
}

// wantArrived checks that all records are at the destination, now.
func (c *trial) wantArrived(records []core.Record) {
	c.Helper()
	ids := map[string]bool{}
	for _, id := range c.arrived() {
		ids[id] = true
	}
	missing := 0
	for i := range records {
		if !ids[records[i].ID] {
			missing++
		}
	}
	if missing > 0 {
		c.Errorf("%d of %d records were answered delivered and are not at the destination", missing, len(records))
	}
}

// wantOrder checks that the records of each key arrived, for the first time, in the order of seq.
func (c *trial) wantOrder(records []core.Record) {
	c.Helper()
	byID := map[string]core.Record{}
	for _, r := range records {
		byID[r.ID] = r
	}
	last := map[string]int64{}
	for _, id := range c.arrived() {
		r, sent := byID[id]
		if !sent || !r.Keyed {
			continue
		}
		if r.Seq < last[r.Key] {
			c.Errorf("key %q: record %d arrived after record %d", r.Key, r.Seq, last[r.Key])
			return
		}
		last[r.Key] = r.Seq
	}
}

func show(o core.Outcome) string {
	return fmt.Sprintf("%v (scope %q, unknown %v, code %q): %s", o.Kind, o.Scope, o.Unknown, o.Code, o.Message)
}
