package daemon

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadyOnStandby: a worker whose leases another one has is ready, for it would take them over.
func TestReadyOnStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newRig("orders")
		_, _, stopFirst := start(t, nil, first)
		time.Sleep(time.Second)
		// Five workers share four partitions, so one of them has none.
		var runners []*runner
		var stops []func() error
		for range 4 {
			r := newRig("orders")
			r.source = first.source
			more, _, stop := start(t, nil, r)
			runners, stops = append(runners, more...), append(stops, stop)
		}
		time.Sleep(10 * first.Policy.Lease)
		idle := 0
		for _, r := range runners {
			h := r.health(time.Now())
			if !h.Ready {
				t.Errorf("%+v", h)
			}
			if h.Engine.Owned == 0 {
				idle++
			}
		}
		if idle == 0 {
			t.Error("no worker stands by; the test shows nothing")
		}
		for _, stop := range append(stops, stopFirst) {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestNotReadyWhenNobodyHasALease: somebody says that he lives, so that partitions are left to him, and takes none.
func TestNotReadyWhenNobodyHasALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("orders")
		ctx, gone := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				_, _ = r.source.Heartbeat(ctx, "idler", nil, r.Policy.Lease)
				time.Sleep(time.Second)
			}
		}()
		time.Sleep(time.Millisecond)
		runners, _, stop := start(t, nil, r)
		time.Sleep(2*r.Policy.Lease - time.Second)
		if h := runners[0].health(time.Now()); !h.Ready || h.Engine.Owned != 2 {
			t.Errorf("before two lease times: %+v", h)
		}
		time.Sleep(lagEvery + 2*time.Second)
		h := runners[0].health(time.Now())
		if h.Ready || !strings.Contains(h.Reason, "no worker has had a lease on 2 of 4 partitions") {
			t.Errorf("after two lease times: %+v", h)
		}
		gone()
		time.Sleep(2 * r.Policy.Lease)
		if h := runners[0].health(time.Now()); !h.Ready || h.Engine.Owned != 4 {
			t.Errorf("the idler is gone: %+v", h)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
