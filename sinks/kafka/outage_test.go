package kafka

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/scripts/services/proxy"
)

// feed sends records as the engine does, in several calls at once that share no key, until it is told to end.
type feed struct {
	t         testing.TB
	sink      *Sink
	end       chan struct{}
	wg        sync.WaitGroup
	delivered atomic.Int64
	unknown   atomic.Int64

	mu   sync.Mutex
	sent []core.Record
}

const (
	feeders  = 4
	feedKeys = 5 // of each
)

func newFeed(t testing.TB, s *Sink) *feed {
	f := &feed{t: t, sink: s, end: make(chan struct{})}
	for n := range feeders {
		f.wg.Go(func() { f.run(n) })
	}
	return f
}

// run makes batches and sends each until all of it is delivered, what was not in its order.
func (f *feed) run(n int) {
	for seq := 1; ; {
		select {
		case <-f.end:
			return
		default:
		}
		var batch []core.Record
		for range 20 {
			key := fmt.Sprintf("key-%d-%d", n, seq%feedKeys)
			batch = append(batch, core.Record{
				ID: fmt.Sprintf("%d-%06d", n, seq), Key: key, Keyed: true, Payload: fmt.Appendf(nil, "%s %d", key, seq),
				CreatedAt: time.Now().Truncate(time.Microsecond), Seq: int64(seq), Deliveries: 1, Epoch: 1,
			})
			seq++
		}
		f.mu.Lock()
		f.sent = append(f.sent, batch...)
		f.mu.Unlock()
		for deadline := time.Now().Add(2 * time.Minute); len(batch) > 0; {
			if batch = f.deliver(batch); time.Now().After(deadline) {
				f.t.Errorf("%d records of a batch are not delivered", len(batch))
				return
			}
		}
	}
}

// deliver returns what has to be sent again.
func (f *feed) deliver(batch []core.Record) []core.Record {
	const patience = 8 * time.Second
	start := time.Now()
	outcomes, err := f.sink.Deliver(within(f.t, patience), batch)
	if took := time.Since(start); took > patience {
		f.t.Errorf("a call took %v", took)
	}
	if err != nil && !errors.Is(err, core.ErrNotSent) {
		f.t.Errorf("Deliver: %v", err)
		return nil
	}
	var again []core.Record
	for i := range batch {
		r := batch[i]
		switch {
		case err != nil:
			again = append(again, r)
			continue
		case outcomes[i].Kind == core.Delivered:
			f.delivered.Add(1)
			continue
		case outcomes[i].Kind == core.Permanent, outcomes[i].Kind == core.Retryable && outcomes[i].Scope == core.ScopeDefault:
			f.t.Errorf("an outage is held against a record: %s %s", verdict(outcomes[i]), outcomes[i].Message)
		case outcomes[i].Unknown:
			f.unknown.Add(1)
		}
		if outcomes[i].Kind == core.Retryable && (outcomes[i].Unknown || outcomes[i].Scope != core.ScopeSink) {
			r.Deliveries++ // as the engine has it
		}
		again = append(again, r)
	}
	if len(again) > 0 {
		time.Sleep(100 * time.Millisecond)
	}
	return again
}

// progress waits until so many more records are delivered.
func (f *feed) progress(n int64) {
	f.t.Helper()
	goal := f.delivered.Load() + n
	for deadline := time.Now().Add(time.Minute); f.delivered.Load() < goal; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("after a minute %d records are delivered, of %d", f.delivered.Load(), goal)
		}
	}
}

// audit ends the feed and holds what was sent against the topic: nothing is lost, each key is in order, and what is there
// twice says so.
func (f *feed) audit(k *topic) {
	f.t.Helper()
	close(f.end)
	f.wg.Wait()
	seen := map[string]bool{}
	first := map[string]int{} // the order of a key's first copies
	twice := 0
	for _, r := range k.records(f.t) {
		if seen[r.ID] {
			twice++
			if !r.PossibleDuplicate() {
				f.t.Errorf("record %s is there twice, and the second one does not say so", r.ID)
			}
			continue
		}
		seen[r.ID] = true
		var seq int
		if _, err := fmt.Sscanf(string(r.Payload), r.Key+" %d", &seq); err != nil {
			f.t.Errorf("payload %q of key %q: %v", r.Payload, r.Key, err)
		}
		if seq < first[r.Key] {
			f.t.Errorf("key %s: %d came after %d", r.Key, seq, first[r.Key])
		}
		first[r.Key] = seq
	}
	for _, r := range f.sent {
		if !seen[r.ID] {
			f.t.Errorf("record %s is lost", r.ID)
		}
	}
	f.t.Logf("%d records, %d of them twice, %d answers unknown", len(f.sent), twice, f.unknown.Load())
}

// The broker is stopped for longer than a call waits, killed and started again, in the midst of calls.
func TestBrokerOutages(t *testing.T) {
	own := services.Own(t, "kafka")
	k := newTopic(t, own.Kafka(), 3, nil)
	s := opened(t, fmt.Appendf(nil, `{"brokers": [%q], "topic": %q}`, own.Kafka()[0], k.name))
	f := newFeed(t, s)
	f.progress(500)
	own.Stop("kafka")
	time.Sleep(9 * time.Second) // the outage, not a wait
	if err := s.Health(within(t, time.Second)); err == nil {
		t.Error("Health is content without a broker")
	}
	own.Start("kafka")
	f.progress(500)
	own.Kill("kafka")
	own.Start("kafka")
	f.progress(500)
	f.audit(k)
}

// The network is cut in the midst of calls: nobody is told, and what was on its way arrives late.
func TestNetworkCut(t *testing.T) {
	brokers := services.Kafka(t)
	k := newTopic(t, brokers, 3, nil)
	p := proxy.New(t, brokers[0], proxy.Kafka)
	s := opened(t, fmt.Appendf(nil, `{"brokers": [%q], "topic": %q, "timeouts": {"request": "2s", "connect": "1s"}}`, p.Addr, k.name))
	f := newFeed(t, s)
	for _, cut := range []struct {
		begin func() (end func())
		lasts time.Duration
	}{
		{p.Freeze, 500 * time.Millisecond}, {p.Freeze, 3 * time.Second}, {p.Freeze, 9 * time.Second},
		{p.Hang, 3 * time.Second}, {p.Hang, 9 * time.Second}, {p.Away, 2 * time.Second},
	} {
		f.progress(300)
		end := cut.begin()
		time.Sleep(cut.lasts) // the outage, not a wait
		end()
	}
	f.progress(300)
	f.audit(k)
}
