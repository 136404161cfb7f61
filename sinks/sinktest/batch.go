package sinktest

import "bytes"

func checkEmptyBatch(c *trial) {
	c.open()
	outcomes, err := c.Sink.Deliver(c.within(c.patience), nil)
	if err != nil || len(outcomes) > 0 {
		c.Errorf("Deliver of no records: %d outcomes, %v", len(outcomes), err)
	}
	if got := c.Received(c); len(got) > 0 {
		c.Errorf("Deliver of no records sent %d", len(got))
	}
}

func checkOneRecord(c *trial) {
	c.open()
	c.wantHealthy()
	batch := c.records(1, "a")
	c.deliverAll(batch)
	c.wantArrived(batch)
	if n := len(c.Received(c)); n != 1 {
		c.Errorf("one delivered record arrived %d times", n)
	}
}

func check500Records(c *trial) {
	c.open()
	records := c.records(500, "a", "b", "", "c")
	for rest := records; len(rest) > 0; {
		n := c.fits(rest)
		c.deliverAll(rest[:n])
		c.wantArrived(rest[:n])
		rest = rest[n:]
	}
	c.wantOrder(records)
	if n := len(c.Received(c)); n != len(records) {
		c.Errorf("%d records were delivered once, %d arrived", len(records), n)
	}
}

// check8MiB sends 64 records of 128 KiB, in as few batches as the sink allows.
func check8MiB(c *trial) {
	c.open()
	if most := c.limits.MaxRecordBytes; most > 0 && most < 129<<10 {
		c.Skipf("the sink takes records up to %d bytes only", most)
	}
	records := c.records(64)
	for i := range records {
		records[i].Payload = text(128 << 10)
	}
	for rest := records; len(rest) > 0; {
		n := c.fits(rest)
		c.deliverAll(rest[:n])
		rest = rest[n:]
	}
	c.wantArrived(records)
}

// check20MB sends one record of 20 MB, unless the sink's limits forbid it, which is said and kept by the engine.
func check20MB(c *trial) {
	c.open()
	r := c.record("big")
	r.Payload = bytes.Repeat([]byte("no JSON "), 20_000_000/8)
	for _, most := range []int64{c.limits.MaxRecordBytes, c.limits.MaxBytes} {
		if most > 0 && most < int64(r.Size()) {
			c.Skipf("the sink limits itself to %d bytes", most)
		}
	}
	batch := append(append(c.records(1, "small"), r), c.records(1, "small")...)
	for i := range batch {
		c.deliverAll(batch[i : i+1])
	}
	c.wantFields(batch)
}
