package rabbitmq

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/scripts/services/proxy"
)

// relay delivers rows as the engine does: batches of the rows that are due, a key in one batch at a time, again what was not
// delivered, and marked what may have been.
type relay struct {
	t         *testing.T
	sink      *Sink
	pending   []core.Record // in order
	delivered map[string]bool
	unknown   int         // outcomes
	enough    atomic.Bool // no more new rows
	stopped   chan struct{}
}

// relaying delivers rows, with some keys and some without, until finish.
func relaying(t *testing.T, sink *Sink) *relay {
	ctx, cancel := context.WithCancel(context.Background())
	r := &relay{t: t, sink: sink, delivered: map[string]bool{}, stopped: make(chan struct{})}
	t.Cleanup(func() {
		cancel()
		<-r.stopped
	})
	go func() {
		defer close(r.stopped)
		for ctx.Err() == nil && (len(r.pending) > 0 || !r.enough.Load()) {
			if n := most - len(r.pending); n > 0 && !r.enough.Load() {
				r.pending = append(r.pending, rows(n, "a", "b", "c", "", "d", "e")...)
			}
			r.batch(ctx)
		}
	}()
	return r
}

// most is how many rows a batch has.
const most = 30

// batch delivers the first rows.
func (r *relay) batch(ctx context.Context) {
	const limit, pause = 3 * time.Second, 10 * time.Millisecond
	n := min(most, len(r.pending))
	call, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	outcomes, err := r.sink.Deliver(call, slices.Clone(r.pending[:n]))
	if took := time.Since(begin); took > limit+time.Second {
		r.t.Errorf("a call of %v took %v", limit, took)
	}
	if err != nil {
		r.t.Errorf("Deliver: %v", err)
		return
	}
	var again []core.Record
	for i, o := range outcomes {
		row := r.pending[i]
		switch {
		case o.Kind == core.Delivered:
			r.delivered[row.ID] = true
			continue
		case o.Kind == core.Permanent:
			r.t.Errorf("row %s is buried: %+v", row.ID, o)
		case o.Kind == core.Retryable && !o.Unknown && o.Scope != core.ScopeSink:
			r.t.Errorf("row %s is charged: %+v", row.ID, o)
		case o.Unknown:
			r.unknown++
			row.Deliveries++
		}
		again = append(again, row)
	}
	time.Sleep(pause)
	r.pending = append(again, r.pending[n:]...)
}

// finish waits until every row is delivered.
func (r *relay) finish() {
	r.t.Helper()
	r.enough.Store(true)
	select {
	case <-r.stopped:
	case <-time.After(2 * time.Minute):
		r.t.Fatal("rows are still not delivered")
	}
}

// wantBooks compares what arrived with what was delivered: nothing lost, the order of keys kept when repetitions are dropped,
// each repetition marked.
func (r *relay) wantBooks(messages []core.Record) {
	r.t.Helper()
	seen := map[string]bool{}
	last := map[string]int64{}
	repeated := 0
	for _, m := range messages {
		if seen[m.ID] {
			repeated++
			if !m.PossibleDuplicate() {
				r.t.Errorf("row %s arrived again without a mark", m.ID)
			}
			continue
		}
		seen[m.ID] = true
		var n int64
		if _, err := fmt.Sscanf(m.ID, "r-%d", &n); err != nil {
			r.t.Fatal(err)
		}
		if m.Keyed && n < last[m.Key] {
			r.t.Errorf("key %s: row %d arrived after row %d", m.Key, n, last[m.Key])
		}
		last[m.Key] = n
	}
	for id := range r.delivered {
		if !seen[id] {
			r.t.Errorf("row %s was delivered and is not there", id)
		}
	}
	r.t.Logf("%d rows, %d repeated, %d outcomes unknown", len(r.delivered), repeated, r.unknown)
}

// arrived reads a queue as records; a message that the publisher repeated within a call counts as a second delivery.
func (s *server) arrived(queue string) []core.Record {
	var all []core.Record
	for _, d := range s.take(queue) {
		r := read(s.t, d)
		if d.Headers[headerDuplicate] == true {
			r.Deliveries = max(r.Deliveries, 2)
		}
		all = append(all, r)
	}
	return all
}

// wantMore waits for n more messages in a queue.
func (s *server) wantMore(queue string, n int) {
	s.t.Helper()
	before := s.depth(queue)
	waitFor(s.t, func() bool { return s.depth(queue) > before+n })
}

// TestServerGone stops the server in good order in mid-run, leaves it away, and kills it.
func TestServerGone(t *testing.T) {
	own := services.Own(t, "rabbitmq")
	s := serverAt(t, own.RabbitMQ(), own.RabbitMQManagement())
	s.exchange("shop", "quorum", nil)
	sink := opened(t, s.settings(s.address, `{"exchange":"shop","routing_key":"{type}"}`))
	r := relaying(t, sink)
	s.wantMore("shop", 300)
	own.Stop("rabbitmq")
	waitFor(t, func() bool { return sink.Health(t.Context()) != nil })
	own.Start("rabbitmq")
	s.wantMore("shop", 300)
	own.Kill("rabbitmq")
	own.Start("rabbitmq")
	s.wantMore("shop", 300)
	r.finish()
	r.wantBooks(s.arrived("shop"))
}

// TestPartition loses all packets in mid-call, for longer than a call takes.
func TestPartition(t *testing.T) {
	s := sharedServer(t)
	s.exchange("shop", "quorum", nil)
	p := proxy.New(t, s.address, proxy.Bytes)
	sink := opened(t, s.settings(p.Addr, `{"exchange":"shop","routing_key":"{type}","heartbeat":"1s"}`))
	r := relaying(t, sink)
	for range 3 {
		s.wantMore("shop", 100)
		restore := p.Freeze()
		waitFor(t, func() bool { return sink.Health(t.Context()) != nil }) // by the heartbeat
		restore()
		waitFor(t, func() bool { return sink.Health(t.Context()) == nil })
	}
	r.finish()
	r.wantBooks(s.arrived("shop"))
}

// TestAlarm has a server that blocks publishers for want of memory: that is nobody's fault, no call takes longer for it, and
// all goes on by itself.
func TestAlarm(t *testing.T) {
	own := services.Own(t, "rabbitmq")
	s := serverAt(t, own.RabbitMQ(), own.RabbitMQManagement())
	s.exchange("shop", "quorum", nil)
	sink := opened(t, s.settings(s.address, `{"exchange":"shop","routing_key":"{type}"}`))
	wantDelivered(t, deliver(t, sink, rows(3, "a")))
	own.RabbitMQCtl("set_vm_memory_high_watermark", "absolute", "1MB")
	batch := rows(6, "a", "", "b")
	waitFor(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		outcomes, err := sink.Deliver(ctx, batch)
		if err != nil || time.Since(begin) > 2*time.Second {
			t.Fatalf("%v after %v", err, time.Since(begin))
		}
		blocked := outcomes[0].Kind == core.Throttled
		for i, o := range outcomes {
			if o.Unknown {
				batch[i].Deliveries++
			}
			if blocked && o.Kind != core.NotAttempted {
				wantOutcome(t, o, core.Throttled, core.ScopeSink, "blocked")
			} else if o.Kind == core.Permanent || o.Kind == core.Retryable && o.Scope != core.ScopeSink {
				t.Errorf("%+v", o)
			}
		}
		return blocked
	})
	if err := sink.Health(t.Context()); err == nil {
		t.Error("healthy while the server takes nothing")
	}
	own.RabbitMQCtl("set_vm_memory_high_watermark", "0.9")
	eventually(t, sink, batch)
}
