package webhook

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// traffic delivers records as the engine does: one a call, so many calls at once, a key in one of them at a time; and a key
// whose record was not delivered comes again when it was told to.
type traffic struct {
	sink  *Sink
	calls int
	// record makes the next record of a key; it may be called concurrently for different keys.
	record func(key, n int) core.Record

	mu        sync.Mutex
	delivered map[string]int // by route
	other     int            // answers that were no delivery
}

// run goes on until ctx ends or so many records were delivered.
func (c *traffic) run(ctx context.Context, keys, total int) {
	c.delivered = map[string]int{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type turn struct{ key, n int }
	ready := make(chan turn, keys)
	for key := range keys {
		ready <- turn{key, 0}
	}
	done := 0
	var wg, waiting sync.WaitGroup
	call := func(now turn) {
		limited, end := context.WithTimeout(ctx, 30*time.Second)
		defer end()
		r := c.record(now.key, now.n)
		outcomes, err := c.sink.Deliver(limited, []core.Record{r})
		if err != nil {
			return // the traffic has ended
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if outcomes[0].Kind == core.Delivered {
			c.delivered[r.Route]++
			if done++; done == total {
				cancel()
			}
			ready <- turn{now.key, now.n + 1}
			return
		}
		c.other++
		waiting.Go(func() {
			select {
			case <-time.After(max(outcomes[0].RetryAfter, 100*time.Millisecond)):
				ready <- now
			case <-ctx.Done():
			}
		})
	}
	for range c.calls {
		wg.Go(func() {
			for {
				select {
				case now := <-ready:
					call(now)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	wg.Wait()
	waiting.Wait()
}

// among makes records whose keys belong to the routes in turn.
func among(routes ...string) func(key, n int) core.Record {
	return func(key, n int) core.Record {
		r := record(fmt.Sprintf("%d-%d", key, n), fmt.Sprint(key))
		r.Route = routes[key%len(routes)]
		return r
	}
}

// A rate limit that limits nothing, against a server that counts: https://github.com/frain-dev/convoy/issues/1927
func TestRateLimitAgainstACountingReceiver(t *testing.T) {
	for name, s := range map[string]func(r *receiver) *Sink{
		"one": func(r *receiver) *Sink {
			return opened(t, to(r.url(), `, "rate_limit": {"rate": "100/s", "burst": 5}`))
		},
		"many": func(r *receiver) *Sink { return manyOpened(t, `, "rate_limit": {"rate": "100/s", "burst": 5}`, r) },
	} {
		r := receive(t)
		begin := time.Now()
		(&traffic{sink: s(r), calls: 32, record: among(r.url())}).run(t.Context(), 100, 150)
		for i, a := range r.got() {
			if most := 5 + 100*a.at.Sub(begin).Seconds(); float64(i+1) > most+1 {
				t.Fatalf("%s: %d requests in %v, want no more than a burst of 5 and 100 a second", name, i+1, a.at.Sub(begin))
			}
		}
	}
}

// An endpoint that hangs takes all places, and the others starve: https://github.com/MainfluxLabs/mainflux/issues/1332,
// https://github.com/frain-dev/convoy/issues/1926
func TestHangingEndpointStarvesNobody(t *testing.T) {
	hung, fine := receive(t), receive(t)
	hung.hang(t)
	s := manyOpened(t, "", hung, fine)
	begin := time.Now()
	(&traffic{sink: s, calls: 128, record: among(hung.url(), fine.url())}).run(t.Context(), 400, 1000)
	if took := time.Since(begin); took > 10*time.Second { // the hanging requests time out after 15
		t.Errorf("1000 records of other endpoints took %v", took)
	}
	if n, _ := hung.counts(); n > firstWidth {
		t.Errorf("an endpoint that never answered had %d requests at once", n)
	}
}

// With two kept connections there is a new one for nearly every request: https://github.com/goharbor/harbor/pull/23591,
// https://github.com/hookdeck/outpost/pull/1021
func TestConnectionsAreKept(t *testing.T) {
	r := receive(t)
	r.always(after(time.Millisecond, status(200)))
	s := opened(t, to(r.url(), `, "concurrency": 32`))
	(&traffic{sink: s, calls: 64, record: among(r.url())}).run(t.Context(), 200, 3000)
	if requests, connections := r.counts(); requests < 3000 || connections > 48 {
		t.Errorf("%d requests took %d connections, want 3000 and about 32", requests, connections)
	}
}

// No more requests than the settings allow are ever on the wire.
func TestConcurrencyIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		open  func(r *receiver) *Sink
		limit int64
	}{
		"one":  {func(r *receiver) *Sink { return opened(t, to(r.url(), `, "concurrency": 8`)) }, 8},
		"many": {func(r *receiver) *Sink { return manyOpened(t, `, "concurrency": 8, "concurrency_per_endpoint": 5`, r) }, 5},
	} {
		r := receive(t)
		var now, most atomic.Int64
		r.always(answer{do: func(w http.ResponseWriter, request *http.Request) {
			for n := now.Add(1); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			after(2*time.Millisecond, status(200)).do(w, request)
			now.Add(-1)
		}})
		s := c.open(r)
		var batch []core.Record
		for i := range 300 {
			rec := record(fmt.Sprint(i), fmt.Sprint(i))
			rec.Route = r.url()
			batch = append(batch, rec)
		}
		for i, o := range send(t, s, batch...) {
			if o.Kind != core.Delivered {
				t.Fatalf("%s: record %d: %+v", name, i, o)
			}
		}
		if got := most.Load(); got > c.limit || got < c.limit-1 {
			t.Errorf("%s: %d requests at once, want %d", name, got, c.limit)
		}
	}
}

// With few connections, requests wait for one before their time begins.
func TestFewConnections(t *testing.T) {
	r := receive(t)
	r.always(after(50*time.Millisecond, status(200)))
	s := opened(t, to(r.url(), `, "max_conns_per_host": 1, "timeouts": {"connect": "1s", "tls": "1s", "header": "1s", "total": "1s"}`))
	var batch []core.Record
	for i := range 40 {
		batch = append(batch, record(fmt.Sprint(i), fmt.Sprint(i)))
	}
	for i, o := range send(t, s, batch...) {
		if o.Kind != core.Delivered {
			t.Fatalf("record %d: %+v", i, o)
		}
	}
	if _, connections := r.counts(); connections != 1 {
		t.Errorf("%d connections", connections)
	}
}

// A thousand connections that end one after another leave nothing behind.
func TestThousandReconnects(t *testing.T) {
	r := receive(t)
	r.always(status(200, "Connection", "close"))
	s := opened(t, to(r.url(), ""))
	want(t, send(t, s, record("first", "k")), core.Delivered)
	before := runtime.NumGoroutine()
	for i := range 1000 {
		want(t, send(t, s, record(fmt.Sprint(i), "k")), core.Delivered)
	}
	if _, connections := r.counts(); connections != 1001 {
		t.Errorf("%d connections, want 1001", connections)
	}
	var left, open int
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		left, open = runtime.NumGoroutine()-before, len(r.conns)
		r.mu.Unlock()
		if left <= 5 && open <= 2 {
			return
		}
	}
	t.Errorf("%d goroutines and %d connections are left", left, open)
}
