package sinktest

import (
	"fmt"
	"sync"

	"github.com/connectd/connectd/core"
)

func checkOrderInBatch(c *trial) {
	c.open()
	batch := c.records(200, "a", "b", "c", "a", "")
	batch = batch[:c.fits(batch)]
	c.deliverAll(batch)
	c.wantArrived(batch)
	c.wantOrder(batch)
}

func checkOrderAcrossBatches(c *trial) {
	c.open()
	var all []core.Record
	for i := range 40 {
		batch := c.records(1+i%7, "a", "b", "")
		batch = batch[:c.fits(batch)]
		c.deliverAll(batch)
		all = append(all, batch...)
	}
	c.wantArrived(all)
	c.wantOrder(all)
}

// checkConcurrent has eight callers, or as many as the sink allows, each with keys of its own.
func checkConcurrent(c *trial) {
	c.open()
	callers := 8
	if c.limits.MaxInFlight > 0 {
		callers = min(callers, c.limits.MaxInFlight)
	}
	var all []core.Record
	work := make([][][]core.Record, callers)
	for caller := range work {
		for range 10 {
			batch := c.records(25, fmt.Sprintf("a-%d", caller), fmt.Sprintf("b-%d", caller), "")
			batch = batch[:c.fits(batch)]
			work[caller] = append(work[caller], batch)
			all = append(all, batch...)
		}
	}
	var wg sync.WaitGroup
	for _, batches := range work {
		wg.Go(func() {
			for _, batch := range batches {
				c.deliverConcurrently(batch)
			}
		})
	}
	wg.Wait()
	c.wantArrived(all)
	c.wantOrder(all)
	if n := len(c.Received(c)); n != len(all) {
		c.Errorf("%d records were delivered once, %d arrived", len(all), n)
	}
}

// deliverConcurrently is deliverAll for goroutines, which may not end the test.
func (c *trial) deliverConcurrently(batch []core.Record) {
	loan := lend(batch)
	defer loan.takeBack()
	outcomes, err := c.Sink.Deliver(c.within(c.patience), loan.records)
	if err != nil || len(outcomes) != len(batch) {
		c.Errorf("one of several Delivers at once: %d outcomes for %d records, %v", len(outcomes), len(batch), err)
		return
	}
	for i, o := range outcomes {
		if o.Kind != core.Delivered {
			c.Errorf("record %d of one of several batches at once is %s", i, show(o))
		}
	}
}
