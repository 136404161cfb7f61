package sinktest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// checkOutage takes the destination away from an open sink: nothing is claimed, nothing is buried, and everything
// arrives in order when it is back.
func checkOutage(c *trial) {
	if c.Outage == nil {
		c.Skip("the harness has no Outage")
	}
	c.open()
	before := c.records(3, "a", "b")
	c.deliverAll(before)

	restore := c.Outage(c)
	batch := c.records(6, "a", "b", "")
	for range 2 {
		c.nothingClaimed(5*time.Second, batch)
	}
	c.wantUnhealthy()
	restore()

	c.persist(batch)
	c.wantArrived(append(before, batch...))
	c.wantOrder(append(before, batch...))
	c.wantHealthy()
}

// checkOutageAtOpen starts the sink while its destination is away.
func checkOutageAtOpen(c *trial) {
	if c.Outage == nil {
		c.Skip("the harness has no Outage")
	}
	c.configure()
	restore := c.Outage(c)
	err := c.Sink.Open(c.within(3 * time.Second))
	if err != nil {
		c.noSecret("an error of Open", err.Error())
	} else {
		c.nothingClaimed(3*time.Second, c.records(2))
	}
	restore()
	for ctx := c.within(c.patience); err != nil; time.Sleep(20 * time.Millisecond) {
		if err = c.Sink.Open(ctx); ctx.Err() != nil {
			c.Fatalf("Open does not succeed after the outage: %v", err)
		}
	}
	batch := c.records(2, "a")
	c.persist(batch)
	c.wantArrived(batch)
}

// nothingClaimed delivers to a destination that takes or answers nothing, with the given time.
func (c *trial) nothingClaimed(d time.Duration, batch []core.Record) {
	c.Helper()
	before := c.arrived()
	start := time.Now()
	outcomes, err := c.deliver(c.within(d), batch)
	if took := time.Since(start); took > d+c.grace {
		c.Errorf("Deliver with %v took %v", d, took)
	}
	for i, o := range outcomes {
		if o.Kind == core.Delivered || o.Kind == core.Permanent {
			c.Errorf("while the destination is away, record %d is %s", i, show(o))
		}
	}
	c.wantTruth(before, batch, outcomes, err)
}

// wantTruth compares what Deliver said was surely not sent, or surely delivered, with what is at the destination. What
// was there before, of an earlier call with the same records, says nothing about this one.
func (c *trial) wantTruth(before []string, batch []core.Record, outcomes []core.Outcome, err error) {
	c.Helper()
	there := map[string]bool{}
	for _, id := range c.arrived() {
		there[id] = true
	}
	notSent := err != nil && errors.Is(err, core.ErrNotSent)
	for i := range batch {
		said := "nothing"
		if err == nil {
			said = show(outcomes[i])
		}
		sent := err == nil && outcomes[i].Kind == core.Delivered
		surelyNot := notSent || err == nil && !sent && !outcomes[i].Unknown
		if there[batch[i].ID] && surelyNot && !slices.Contains(before, batch[i].ID) {
			c.Errorf("record %d is at the destination although it is surely not: %s, error %v", i, said, err)
		}
		if !there[batch[i].ID] && sent {
			c.Errorf("record %d was answered delivered and is not at the destination", i)
		}
	}
}

// wantHealthy asks a sink whose destination is there. One that has no way to ask may say so.
func (c *trial) wantHealthy() {
	c.Helper()
	if err := c.Sink.Health(c.within(c.patience)); err != nil && !errors.Is(err, core.ErrNoHealth) {
		c.Errorf("Health: %v", err)
	}
}

// wantUnhealthy waits for Health to see the outage.
func (c *trial) wantUnhealthy() {
	c.Helper()
	for ctx := c.within(c.patience); ; time.Sleep(20 * time.Millisecond) {
		err := c.Sink.Health(ctx)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			c.noSecret("an error of Health", err.Error())
			return
		}
		if ctx.Err() != nil {
			if err == nil {
				c.Error("Health is content while the destination is away")
			}
			return
		}
	}
}
