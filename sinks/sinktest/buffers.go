package sinktest

import (
	"strings"
	"time"
)

// checkBuffers delivers batches whose memory is used again right after each call, which is what every call of the suite
// does, and then looks closely at what arrived.
func checkBuffers(c *trial) {
	c.open()
	all := c.records(60, "a", "b", "")
	for i := 0; i < len(all); i += 3 {
		c.deliverAll(all[i : i+3])
	}
	c.close() // whatever is still to be written is written now
	c.wantFields(all)
}

// checkBuffersAfterTimeout takes the memory back from a call that ended early, while the sink may still be at it.
func checkBuffersAfterTimeout(c *trial) {
	if c.Hang == nil {
		c.Skip("the harness has no Hang")
	}
	c.open()
	restore := c.Hang(c)
	batch := c.records(4, "a", "")
	c.nothingClaimed(200*time.Millisecond, batch)
	restore()
	c.persist(batch)
	c.close()
	for _, r := range c.Received(c) {
		if strings.ContainsRune(r.ID+r.Key+r.Route+r.Type+string(r.Payload), poison) {
			c.Errorf("a record was sent from memory that had been taken back: id %.80q, payload %.80q", r.ID, r.Payload)
		}
	}
}
