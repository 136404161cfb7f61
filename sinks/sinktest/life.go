package sinktest

import (
	"time"

	"go.uber.org/goleak"
)

func checkCloseUnopened(c *trial) {
	c.configure()
	c.close()
	c.close()
}

// checkCloseAfterFailedOpen wants Close to work when there is nothing to close.
func checkCloseAfterFailedOpen(c *trial) {
	if c.Outage == nil {
		c.Skip("the harness has no Outage")
	}
	c.configure()
	restore := c.Outage(c)
	defer restore()
	if err := c.Sink.Open(c.within(2 * time.Second)); err != nil { // a sink that connects later may succeed
		c.noSecret("an error of Open", err.Error())
	}
	c.close()
	c.close()
}

func checkCloseTwice(c *trial) {
	c.open()
	c.deliverAll(c.records(1))
	c.close()
	c.close()
}

// checkGoroutines compares the goroutines before Open and after Close.
func checkGoroutines(c *trial) {
	c.describe()
	before := goleak.IgnoreCurrent()
	c.open()
	for range 3 {
		c.deliverAll(c.records(20, "a", "b"))
	}
	c.wantHealthy()
	c.close()
	var leak error
	for deadline := time.Now().Add(c.patience / 4); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if leak = goleak.Find(before); leak == nil {
			return
		}
	}
	c.Errorf("goroutines are left after Close: %v", leak)
}
