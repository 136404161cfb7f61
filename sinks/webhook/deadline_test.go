package webhook

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// within sends records in a call of that length, which gives the sink a tenth less, as package plugins does. It wants the
// answer in the time of the call: a later one is lost.
func within(t *testing.T, s *Sink, limit time.Duration, records ...core.Record) []core.Outcome {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit-limit/10)
	defer cancel()
	outcomes, err := s.Deliver(ctx, records)
	if took := time.Since(began); err != nil || took >= limit {
		t.Fatalf("no answer in the time of the call: %v, %v", err, took)
	}
	return outcomes
}

// slow answers each request after a while.
func slow(r *receiver, took time.Duration) { r.always(after(took, status(http.StatusOK))) }

func TestAKeyWithMoreRecordsThanTime(t *testing.T) {
	r := receive(t)
	slow(r, 100*time.Millisecond)
	s := opened(t, to(r.url(), `, "timeouts": {"total": "1s", "header": "1s", "connect": "1s", "tls": "1s"}`))
	var batch []core.Record
	for i := range 50 {
		batch = append(batch, record(fmt.Sprint(i), "k"))
	}
	outcomes := within(t, s, 2*time.Second, batch...)
	for i, o := range outcomes {
		if sent := i < len(r.got()); sent != (o.Kind == core.Delivered) || !sent && o.Kind != core.NotAttempted {
			t.Errorf("record %d of which the receiver got %d: %+v", i, len(r.got()), o)
		}
	}
	want(t, outcomes[:1], core.Delivered)
	want(t, outcomes[49:], core.NotAttempted)
}

// One request that hangs does not lose what the same call knows of others.
func TestARequestThatOutlastsItsCall(t *testing.T) {
	r := receive(t)
	r.always(answer{do: func(w http.ResponseWriter, request *http.Request) {
		if request.Header.Get("Webhook-Id") == "hangs" {
			<-request.Context().Done()
		}
	}})
	s := opened(t, to(r.url(), ""))
	outcomes := within(t, s, 2*time.Second, record("a", "a"), record("hangs", "b"), record("c", "c"))
	want(t, outcomes, core.Delivered, core.Retryable, core.Delivered)
	wantFailure(t, outcomes[1], core.Retryable, core.ScopeDefault, true, "timeout")
}

// Records that wait for a place, or for the rate limit, until their call ends were not sent, and that is what is said.
func TestCallsThatWaitInVain(t *testing.T) {
	for _, more := range []string{`, "concurrency": 1`, `, "rate_limit": {"rate": "1/10s", "burst": 1}`} {
		r := receive(t)
		slow(r, 1500*time.Millisecond)
		s := opened(t, to(r.url(), more))
		var wg sync.WaitGroup
		var mu sync.Mutex
		kinds := map[string]int{}
		for i := range 4 {
			wg.Go(func() {
				o := within(t, s, 4*time.Second, record(fmt.Sprint(i), fmt.Sprint(i)))[0]
				mu.Lock()
				defer mu.Unlock()
				kinds[o.Kind.String()]++
				if o.Kind != core.Delivered && o.Unknown {
					t.Errorf("%s: %+v", more, o)
				}
			})
		}
		wg.Wait()
		if got := len(r.got()); kinds[core.Delivered.String()] != got || got == 0 || got == 4 {
			t.Errorf("%s: the receiver got %d, %v", more, got, kinds)
		}
	}
}

// More calls than requests at once wait for their turn: that is nothing to pause the connector for.
func TestMoreCallsThanRequests(t *testing.T) {
	r := receive(t)
	slow(r, 5*time.Millisecond)
	s := opened(t, to(r.url(), `, "max_conns_per_host": 2`))
	if d, err := s.Describe(t.Context()); err != nil || d.Prefers.InFlight != 2 {
		t.Errorf("prefers %+v with two connections, %v", d.Prefers, err)
	}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() { want(t, send(t, s, record(fmt.Sprint(i), fmt.Sprint(i))), core.Delivered) })
	}
	wg.Wait()
}

// Where the outcomes are in the answer's body it is waited for, as long as the request may take.
func TestResultsThatTakeTheirTime(t *testing.T) {
	r := receive(t)
	r.always(answer{do: func(w http.ResponseWriter, request *http.Request) {
		fmt.Fprint(w, "[")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(1500 * time.Millisecond): // more than is waited for a body that only says why
		case <-request.Context().Done():
		}
		fmt.Fprint(w, `{"id": "a", "status": 200}]`)
	}})
	s := opened(t, to(r.url(), `, "batch": {"per_row_results": ""}`))
	want(t, send(t, s, record("a", "k")), core.Delivered)
	wantRequests(t, r, 1)
}
