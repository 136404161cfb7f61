package sinktest

import (
	"fmt"

	"github.com/connectd/connectd/core"
)

// checkRefusedPlaces has one or all records of a batch refused, at each place: exactly those are permanent, and their
// neighbours are delivered.
// Results that shift to a neighbour's place: https://github.com/ConduitIO/conduit/pull/2733
func checkRefusedPlaces(c *trial) {
	if c.Refuse == nil {
		c.Skip("the harness has no Refuse")
	}
	c.open()
	for _, places := range [][]int{{0}, {2}, {4}, {0, 2, 3}, {0, 1, 2, 3, 4}} {
		batch := make([]core.Record, 5)
		bad := map[int]bool{}
		for _, i := range places {
			bad[i] = true
		}
		for i := range batch {
			batch[i] = c.record(fmt.Sprintf("key-%d", c.seq))
			if bad[i] {
				batch[i] = c.Refuse(batch[i])
			}
		}
		n := c.fits(batch)
		if n < len(batch) {
			c.Skipf("the sink takes batches of %d only", n)
		}
		outcomes, err := c.deliver(c.within(c.patience), batch)
		if err != nil {
			c.Fatalf("Deliver with records %v refused: %v", places, err)
		}
		c.wantVerdicts(batch, outcomes, func(i int) core.OutcomeKind {
			if bad[i] {
				return core.Permanent
			}
			return core.Delivered
		})
	}
}

// checkRefusedKey has a record refused in the middle of its key: the later ones of the key are not attempted, those of
// other keys and without a key are delivered.
func checkRefusedKey(c *trial) {
	if c.Refuse == nil {
		c.Skip("the harness has no Refuse")
	}
	c.open()
	batch := c.records(8, "a", "b", "", "a")
	batch[3] = c.Refuse(batch[3])
	if !batch[3].Keyed || batch[3].Key != "a" {
		c.Skip("the harness's Refuse changes the key")
	}
	if n := c.fits(batch); n < len(batch) {
		c.Skipf("the sink takes batches of %d only", n)
	}
	outcomes, err := c.deliver(c.within(c.patience), batch)
	if err != nil {
		c.Fatalf("Deliver: %v", err)
	}
	want := map[int]core.OutcomeKind{3: core.Permanent, 4: core.NotAttempted, 7: core.NotAttempted}
	c.wantVerdicts(batch, outcomes, func(i int) core.OutcomeKind {
		if kind, ok := want[i]; ok {
			return kind
		}
		return core.Delivered
	})
}

// wantVerdicts compares outcomes with what is wanted and with what is at the destination.
func (c *trial) wantVerdicts(batch []core.Record, outcomes []core.Outcome, want func(i int) core.OutcomeKind) {
	c.Helper()
	there := map[string]bool{}
	for _, id := range c.arrived() {
		there[id] = true
	}
	for i, o := range outcomes {
		if o.Kind != want(i) {
			c.Errorf("record %d of %d is %s, want %v", i, len(batch), show(o), want(i))
		}
		if o.Kind == core.Permanent && o.Scope != core.ScopeDefault && o.Scope != core.ScopeRecord {
			c.Errorf("record %d is refused for more than itself: %s", i, show(o))
		}
		if there[batch[i].ID] != (want(i) == core.Delivered) {
			c.Errorf("record %d, %v, is at the destination: %v", i, o.Kind, there[batch[i].ID])
		}
	}
}
