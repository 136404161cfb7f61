package sinktest

import (
	"context"
	"time"

	"github.com/connectd/connectd/core"
)

// checkDoneContext calls with a context that has ended.
func checkDoneContext(c *trial) {
	c.open()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	batch := c.records(3, "a")
	start := time.Now()
	outcomes, err := c.deliver(ctx, batch)
	if took := time.Since(start); took > c.grace {
		c.Errorf("Deliver with a context that was done took %v", took)
	}
	c.wantTruth(nil, batch, outcomes, err)
	again := c.records(3, "b")
	c.deliverAll(again)
	c.wantArrived(again)
}

// checkShortDeadlines lets many calls end early, somewhere: whatever they claim must be true.
func checkShortDeadlines(c *trial) {
	c.open()
	for _, d := range []time.Duration{50 * time.Microsecond, 200 * time.Microsecond, time.Millisecond, 4 * time.Millisecond} {
		for range 5 {
			batch := c.records(100, "a", "b", "")
			batch = batch[:c.fits(batch)]
			start := time.Now()
			outcomes, err := c.deliver(c.within(d), batch)
			if took := time.Since(start); took > d+c.grace {
				c.Errorf("Deliver with %v took %v", d, took)
			}
			c.wantClaims(batch, outcomes, err)
		}
	}
	last := c.records(3, "c")
	c.persist(last)
	c.wantArrived(last)
}

// wantClaims checks that what was answered delivered is there.
func (c *trial) wantClaims(batch []core.Record, outcomes []core.Outcome, err error) {
	c.Helper()
	var claimed []core.Record
	for i := range outcomes {
		if err == nil && outcomes[i].Kind == core.Delivered {
			claimed = append(claimed, batch[i])
		}
	}
	c.wantArrived(claimed)
}

// checkHang has a destination that does not answer: each call ends soon after its context, says that it does not know,
// and the sink works again later.
func checkHang(c *trial) {
	if c.Hang == nil {
		c.Skip("the harness has no Hang")
	}
	c.open()
	c.deliverAll(c.records(1))
	restore := c.Hang(c)
	batch := c.records(4, "a", "")
	for range 2 {
		c.nothingClaimed(300*time.Millisecond, batch)
	}
	start := time.Now()
	_ = c.Sink.Health(c.within(300 * time.Millisecond)) // may answer either way: it is not Deliver
	if took := time.Since(start); took > 300*time.Millisecond+c.grace {
		c.Errorf("Health with 300ms took %v", took)
	}
	restore()
	c.persist(batch)
	c.wantArrived(batch)
	c.wantOrder(batch)
}

// checkCloseWhileHanging wants Close back within its context, whatever the destination does.
func checkCloseWhileHanging(c *trial) {
	if c.Hang == nil {
		c.Skip("the harness has no Hang")
	}
	c.open()
	restore := c.Hang(c)
	defer restore()
	c.nothingClaimed(200*time.Millisecond, c.records(1))
	start := time.Now()
	c.closed = true
	if err := c.Sink.Close(c.within(time.Second)); err != nil {
		c.noSecret("an error of Close", err.Error()) // it may fail, but not hang
	}
	if took := time.Since(start); took > time.Second+2*c.grace {
		c.Errorf("Close with 1s took %v", took)
	}
}
