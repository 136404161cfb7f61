package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// timedSource notes when one worker's calls about leases were made.
type timedSource struct {
	*memory.Source
	mu     sync.Mutex
	pulses []time.Time
	renews []time.Time
	looks  []time.Time
}

func (s *timedSource) note(list *[]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, time.Now())
}

func (s *timedSource) Heartbeat(ctx context.Context, owner string, info []byte, ttl time.Duration) (core.Pulse, error) {
	s.note(&s.pulses)
	return s.Source.Heartbeat(ctx, owner, info, ttl)
}

func (s *timedSource) Renew(ctx context.Context, owner string, leases []core.Lease, lease time.Duration) ([]core.Lease, error) {
	s.note(&s.renews)
	return s.Source.Renew(ctx, owner, leases, lease)
}

func (s *timedSource) Acquire(ctx context.Context, owner string, limit int, lease time.Duration, hold bool) ([]core.Acquired, error) {
	s.note(&s.looks)
	return s.Source.Acquire(ctx, owner, limit, lease, hold)
}

// since is how many calls of a list were made after a moment, and the first of them.
func (s *timedSource) since(list *[]time.Time, t time.Time) (n int, first time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(*list, t.Before)
	if i < 0 {
		return 0, time.Time{}
	}
	return len(*list) - i, (*list)[i]
}

// Eight workers that start in one moment: no partition moves twice, who has its share does not look for more, and
// heartbeats and renewals do not stay together.
func TestWorkersThatBeginTogetherAreNoHerd(t *testing.T) {
	inBubble(t, 16, func(w *world) {
		var workers []*timedSource
		for range 8 {
			s := &timedSource{Source: w.source}
			workers = append(workers, s)
			defer w.start(w.connector(func(c *engine.Connector) { c.Source = s }))()
		}
		lease := engine.DefaultPolicy().Lease
		time.Sleep(2 * lease)
		for part := range 16 {
			if _, epoch, _ := w.source.Lease(part); epoch > 2 {
				t.Errorf("partition %d was acquired %d times", part, epoch)
			}
		}
		time.Sleep(10 * lease)
		settled := time.Now()
		time.Sleep(2 * lease)
		var pulses, renews []time.Time
		for _, s := range workers {
			if n, _ := s.since(&s.looks, settled); n > 0 {
				t.Errorf("a worker with its share looked for more %d times in two lease times", n)
			}
			for list, firsts := range map[*[]time.Time]*[]time.Time{&s.pulses: &pulses, &s.renews: &renews} {
				n, first := s.since(list, settled)
				if n < 5 || n > 8 {
					t.Errorf("%d calls in two lease times, want 6 or 7", n)
				}
				*firsts = append(*firsts, first)
			}
		}
		for what, firsts := range map[string][]time.Time{"heartbeats": pulses, "renewals": renews} {
			slices.SortFunc(firsts, time.Time.Compare)
			if spread := firsts[len(firsts)-1].Sub(firsts[0]); spread < lease/20 {
				t.Errorf("the eight workers' %s are within %v", what, spread)
			}
		}
	})
}

// A drain is told with one last heartbeat.
func TestADrainIsTold(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(5, 5)
		w.sink.Before(memory.Delay(5 * time.Second))
		stop := w.start(w.connector(nil))
		w.wait(5*time.Second, "a call runs", func() bool { return w.sink.Calls() > 0 })
		ended := make(chan struct{})
		go func() { stop(); close(ended) }()
		time.Sleep(time.Second)
		workers, err := w.source.Workers(t.Context())
		if err != nil || len(workers) != 1 || workers[0].Age > time.Second+time.Millisecond || !drains(t, workers[0]) {
			t.Errorf("workers: %+v, %v", workers, err)
		}
		<-ended
	})
}

func drains(t *testing.T, w core.WorkerInfo) bool {
	t.Helper()
	var s engine.Status
	if err := json.Unmarshal(w.Info, &s); err != nil {
		t.Fatal(err)
	}
	return s.Draining
}
