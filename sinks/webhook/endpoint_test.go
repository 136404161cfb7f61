package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

// limits are the settings that endpoints look at, as the defaults are.
func limits() *config {
	c := &config{Concurrency: 64, PerEndpoint: 16}
	c.Timeouts.Header, c.Timeouts.Total = settings.Duration(15*time.Second), settings.Duration(20*time.Second)
	c.Breaker = &breaker{MinRequests: 10, FailureRatio: 0.7, OpenFor: settings.Duration(30 * time.Second), HalfOpen: 1}
	return c
}

// one returns an endpoint that is one of many.
func one(c *config) *endpoint {
	return endpointMaker(c, true, slog.New(slog.DiscardHandler))("https://a.example:443")
}

var (
	good       = verdict{outcome: core.Outcome{Kind: core.Delivered}}
	dead       = verdict{endpoint: true, trouble: true, outcome: core.Outcome{Kind: core.Retryable}}
	overloaded = verdict{slower: true, trouble: true, outcome: core.Outcome{Kind: core.Retryable}}
)

// during sends one request that takes a time and ends with the verdict; it returns why it did not go out, if so.
func during(ctx context.Context, e *endpoint, took time.Duration, v verdict) *core.Outcome {
	done, refused := e.admit(ctx, true)
	if refused != nil {
		return refused
	}
	time.Sleep(took)
	done(&v)
	return nil
}

func wantRefused(t *testing.T, o *core.Outcome, code string, least, most time.Duration) {
	t.Helper()
	if o == nil || o.Code != code || o.Kind != core.Throttled || o.Scope != core.ScopeKey || o.Message == "" {
		t.Fatalf("refused with %+v, want %s", o, code)
	}
	if o.RetryAfter < least || o.RetryAfter > most {
		t.Fatalf("%s: to be retried after %v, want %v to %v", code, o.RetryAfter, least, most)
	}
}

func TestWindowWidensAndHalves(t *testing.T) {
	w := newWindow(16)
	start := time.Unix(1000, 0)
	for n := 2; n < 16; n++ {
		if !w.room(n-1) || w.room(n) {
			t.Fatalf("a window of %v should be %d wide", w.width, n)
		}
		w.widen()
	}
	w.widen()
	w.widen()
	if w.room(16) {
		t.Fatalf("a window of %v is wider than allowed", w.width)
	}
	for range 16 { // one overload, met by all that was on the wire
		w.halve(start, start.Add(time.Second))
	}
	if w.width != 8 {
		t.Fatalf("after one overload the window is %v wide, want 8", w.width)
	}
	for range 8 { // a round trip
		w.widen()
	}
	if w.width < 8.9 || w.width > 9.1 {
		t.Fatalf("a round trip after an overload the window is %v wide, want 9", w.width)
	}
	for i := range 10 {
		w.halve(start.Add(time.Duration(i+1)*time.Second), start.Add(time.Duration(i+2)*time.Second))
	}
	if !w.room(0) || w.room(1) {
		t.Fatalf("after many overloads the window is %v wide, want 1", w.width)
	}
}

// A dead endpoint is tried again and again and uses all workers: https://github.com/liwala/ay-framework/issues/105,
// https://github.com/frain-dev/convoy/issues/1926
func TestDeadEndpointIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := one(limits())
		sent, refused := 0, 0
		for range 3600 { // an hour, a record each second
			if o := during(t.Context(), e, 10*time.Millisecond, dead); o != nil {
				wantRefused(t, o, "breaker_open", soonest, 30*time.Second+maxSpread)
				refused++
			} else {
				sent++
			}
			time.Sleep(time.Second)
		}
		if sent < 100 || sent > 10+3600/30+1 || refused == 0 {
			t.Errorf("in an hour a dead endpoint got %d requests, want 10 and then one in 30 seconds", sent)
		}
	})
}

// An endpoint that has done well for a minute has many good answers in the breaker's window.
func TestBreakerOpensSoonAfterGoodTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := one(limits())
		for range 1000 {
			_ = during(t.Context(), e, 10*time.Millisecond, good)
		}
		sent := 0
		for during(t.Context(), e, 10*time.Millisecond, dead) == nil {
			sent++
		}
		if sent != 10 {
			t.Errorf("the breaker opened after %d failures in a row, want 10", sent)
		}
	})
}

// 400 and 422 are the record's own fault, and a pause that is asked for is none.
func TestBreakerIgnoresWhatIsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := one(limits())
		refuses := verdict{outcome: core.Outcome{Kind: core.Permanent}}
		for range 100 {
			if o := during(t.Context(), e, time.Millisecond, refuses); o != nil {
				t.Fatalf("records that are refused close an endpoint: %+v", o)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			done, o := e.admit(t.Context(), true)
			if o != nil {
				t.Fatalf("requests that we end close an endpoint: %+v", o)
			}
			done(nil)
		}
		if o := during(ctx, e, 0, good); o != nil && o.Kind != core.NotAttempted {
			t.Errorf("a context that is done: %+v", o)
		}
	})
}

// All that waited floods a receiver that has just come back: https://github.com/capcom6/android-sms-gateway/issues/302
func TestRecoveryStartsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := one(limits())
		for range 30 {
			_ = during(t.Context(), e, time.Millisecond, good)
		}
		for during(t.Context(), e, time.Millisecond, dead) == nil {
		}
		time.Sleep(31 * time.Second)
		var mu sync.Mutex
		wire, most := 0, []int{}
		for range 6 { // round trips
			peak := 0
			var wg sync.WaitGroup
			for range 40 {
				wg.Go(func() {
					done, o := e.admit(t.Context(), true)
					if o != nil {
						return
					}
					mu.Lock()
					wire++
					peak = max(peak, wire)
					mu.Unlock()
					time.Sleep(100 * time.Millisecond)
					mu.Lock()
					wire--
					mu.Unlock()
					done(&good)
				})
			}
			synctest.Wait()
			mu.Lock()
			most = append(most, peak)
			mu.Unlock()
			wg.Wait()
		}
		if most[0] != 1 || most[1] != 2 || most[len(most)-1] != 16 {
			t.Errorf("requests at once at the beginnings of the rounds after the recovery: %v, want 1, 2 and up to 16", most)
		}
	})
}

// One endpoint that hangs must not hold up calls: https://github.com/MainfluxLabs/mainflux/issues/1332,
// https://github.com/frain-dev/convoy/issues/1926
func TestHangingEndpointIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := one(limits())
		for range 30 {
			_ = during(t.Context(), e, time.Millisecond, good)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		codes := map[string]int{}
		for range 40 {
			wg.Go(func() {
				o := during(t.Context(), e, 15*time.Second, overloaded)
				mu.Lock()
				defer mu.Unlock()
				if o == nil {
					codes["sent"]++
				} else {
					codes[o.Code]++
				}
			})
		}
		soFar := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(codes)
		}
		if got := soFar(); got != "map[busy:8]" { // 16 on the wire, 16 wait
			t.Fatalf("at once: %s", got)
		}
		time.Sleep(1600 * time.Millisecond)
		if got := soFar(); got != "map[busy:8 stalled:16]" {
			t.Fatalf("after a while without an answer: %s", got)
		}
		before := time.Now()
		wantRefused(t, during(t.Context(), e, 0, good), "stalled", 5*time.Second, 40*time.Second)
		if took := time.Since(before); took > 0 {
			t.Errorf("a record for an endpoint that hangs held up its call for %v", took)
		}
		if n := len(e.places.active); n > 0 {
			t.Errorf("requests that hang hold %d of the active places", n)
		}
		wg.Wait()
		if codes["sent"] != 16 || e.used != 0 || len(e.places.aside) != 0 {
			t.Errorf("in the end: %v, %d places in use, %d aside", codes, e.used, len(e.places.aside))
		}
		wantRefused(t, during(t.Context(), e, 0, good), "breaker_open", 29*time.Second, 90*time.Second)
	})
}

// When there is no place aside, what takes long keeps its place, and who would have to wait is refused.
func TestPlacesAsideAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(2, time.Second)
		var leave []func()
		for range 2 * cap(p.active) {
			l, err := p.enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
			time.Sleep(2 * time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.enter(ctx); err == nil {
			t.Error("a fifth request went out beside four")
		}
		if p.standAside() {
			t.Error("there was a third place aside")
		}
		for _, l := range leave {
			l()
		}
		if len(p.active) > 0 || len(p.aside) > 0 {
			t.Errorf("%d and %d places are not given back", len(p.active), len(p.aside))
		}
	})
}

// An answer of 429 is a wish, with a time or without: https://gitlab.com/gitlab-org/gitlab/-/issues/389348
func TestEndpointThatAsksForAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := one(limits())
		ask := func(after time.Duration) time.Duration {
			done, o := e.admit(t.Context(), true)
			if o != nil {
				t.Fatalf("refused: %+v", o)
			}
			v := verdict{endpoint: true, slower: true, outcome: core.Outcome{Kind: core.Throttled, RetryAfter: after}}
			done(&v)
			return v.outcome.RetryAfter
		}
		if got := ask(7 * time.Second); got != 7*time.Second {
			t.Errorf("asked for 7s, the record waits %v", got)
		}
		wantRefused(t, during(t.Context(), e, 0, good), "paused", 7*time.Second, 8*time.Second)
		time.Sleep(7 * time.Second)
		_ = during(t.Context(), e, 0, good)
		for _, seconds := range []float64{1, 2, 4, 8, 16, 32, 60, 60} {
			got := ask(0)
			if got.Seconds() != seconds {
				t.Errorf("asked for a pause without a time, the record waits %v, want %v seconds", got, seconds)
			}
			time.Sleep(got)
		}
		if o := during(t.Context(), e, 0, good); o != nil {
			t.Errorf("after its pause: %+v", o)
		}
		if got := ask(0); got != time.Second {
			t.Errorf("after a good answer the pause is %v, want 1s again", got)
		}
	})
}

// All that were on their way when the endpoint asked for a pause ask for the same one.
func TestPauseThatManyAskFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := one(limits())
		for range 30 {
			_ = during(t.Context(), e, time.Millisecond, good)
		}
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				v := verdict{endpoint: true, slower: true, outcome: core.Outcome{Kind: core.Throttled}}
				if o := during(t.Context(), e, time.Second, v); o != nil {
					t.Errorf("refused: %+v", o)
				}
			})
		}
		wg.Wait()
		wantRefused(t, during(t.Context(), e, 0, good), "paused", time.Second, 2*time.Second)
	})
}

// The engine stops the connector when its one receiver is away. Then that, too, begins again with few requests.
func TestOneReceiverBeginsAgainWithFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := endpointMaker(limits(), false, slog.New(slog.DiscardHandler))("http://a.example:80")
		for range 100 {
			_ = during(t.Context(), e, time.Millisecond, good)
		}
		if !e.window.room(63) || e.window.room(64) {
			t.Fatalf("after 100 good answers there is room for %v, want 64", e.window.width)
		}
		_ = during(t.Context(), e, time.Millisecond, dead)
		if e.window.room(1) {
			t.Errorf("after a failure there is room for %v, want 1", e.window.width)
		}
	})
}

// A request that the rate limit does not let out while one may be begun is put off at once.
func TestRateLimitOfTheOneReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limits()
		c.RateLimit = &rateLimit{Rate: rate{1, time.Second}, Burst: 1}
		e := endpointMaker(c, false, slog.New(slog.DiscardHandler))("http://a.example:80")
		e.window.width = 64
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		var sent, later atomic.Int64
		for range 20 {
			wg.Go(func() {
				switch o := during(ctx, e, 0, good); {
				case o == nil:
					sent.Add(1)
				case o.Kind == core.Throttled && o.Scope == core.ScopeDefault && o.RetryAfter > 5*time.Second && o.RetryAfter <= 6*time.Second:
					later.Add(1)
				default:
					t.Errorf("refused: %+v", o)
				}
			})
		}
		wg.Wait()
		if sent.Load() != 6 || later.Load() != 14 {
			t.Errorf("%d were sent and %d put off, want 6 in 5 seconds and the rest at once", sent.Load(), later.Load())
		}
	})
}

// A rate limit that limits nothing: https://github.com/frain-dev/convoy/issues/1927
func TestRateLimitOfAnEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limits()
		c.RateLimit = &rateLimit{Rate: rate{20, time.Second}, Burst: 5}
		e := one(c)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var mu sync.Mutex
		var sent []time.Time
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for ctx.Err() == nil {
					done, o := e.admit(ctx, true)
					if o != nil {
						select {
						case <-time.After(max(o.RetryAfter, time.Millisecond)):
						case <-ctx.Done():
						}
						continue
					}
					mu.Lock()
					sent = append(sent, time.Now())
					mu.Unlock()
					time.Sleep(5 * time.Millisecond)
					done(&good)
				}
			})
		}
		wg.Wait()
		for i := range sent { // no second may have more than a burst and a second's worth
			n := 0
			for _, at := range sent[i:] {
				if at.Sub(sent[i]) < time.Second {
					n++
				}
			}
			if n > 25 {
				t.Fatalf("%d requests in a second, want at most 20 and a burst of 5", n)
			}
		}
		if len(sent) < 180 || len(sent) > 206 {
			t.Errorf("%d requests in 10 seconds, want about 200", len(sent))
		}
	})
}

// Whatever ends how, at the end every place is free and nobody waits.
func TestAdmissionLosesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limits()
		c.Concurrency, c.PerEndpoint = 8, 4
		c.RateLimit = &rateLimit{Rate: rate{200, time.Second}, Burst: 10}
		create := endpointMaker(c, true, slog.New(slog.DiscardHandler))
		many := []*endpoint{create("a"), create("b"), create("c")}
		var wg sync.WaitGroup
		for i := range 64 {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				for range 200 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(2000))*time.Millisecond)
					done, o := many[random.IntN(len(many))].admit(ctx, random.IntN(2) == 0)
					if o == nil {
						time.Sleep(time.Duration(random.IntN(random.IntN(4000)+1)) * time.Millisecond)
						verdicts := []*verdict{nil, &good, &good, &good, &dead, &overloaded}
						done(verdicts[random.IntN(len(verdicts))])
					}
					cancel()
				}
			})
		}
		wg.Wait()
		for _, e := range many {
			if e.used != 0 || len(e.queue) != 0 {
				t.Errorf("%s has %d places in use and %d that wait", e.name, e.used, len(e.queue))
			}
		}
		if p := many[0].places; len(p.active) != 0 || len(p.aside) != 0 {
			t.Errorf("%d and %d places are not given back", len(p.active), len(p.aside))
		}
	})
}

// An endpoint that hangs from the beginning has few requests, and in the end a breaker that is open. The records for it do
// not keep the engine busy.
func TestEndpointThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := one(limits())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		const keys = 100
		var sent, refused atomic.Int64
		var wg sync.WaitGroup
		for range keys {
			wg.Go(func() {
				for ctx.Err() == nil {
					wait := time.Minute // the engine's own, for a record that failed
					if o := during(ctx, e, 15*time.Second, overloaded); o == nil {
						sent.Add(1)
					} else {
						wait = o.RetryAfter
						refused.Add(1)
					}
					time.Sleep(max(wait, 50*time.Millisecond))
				}
			})
		}
		wg.Wait()
		if n := sent.Load(); n < 60 || n > 100 {
			t.Errorf("in an hour there were %d requests", n)
		}
		if n := refused.Load() / keys; n > 200 {
			t.Errorf("in an hour each key came %d times in vain", n)
		}
	})
}

// Records that have to come again come as fast as the endpoint took them.
func TestRecordsComeAgainSpread(t *testing.T) {
	now := time.Unix(1000, 0)
	var s turns
	s.answered(200*time.Millisecond, 10) // 50 a second
	for i := range 100 {
		want := 5*time.Second + time.Duration(i)*20*time.Millisecond
		if got := s.next(now, 5*time.Second); got != want {
			t.Fatalf("record %d comes again after %v, want %v", i, got, want)
		}
	}
	for range 10_000 {
		if got := s.next(now, 5*time.Second); got > 5*time.Second+maxSpread {
			t.Fatalf("a record comes again only after %v", got)
		}
	}
}

// A call that ends while its record waits for a place says nothing about the sink as a whole if there are other endpoints.
func TestCallThatEndsInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limits()
		fixed := endpointMaker(c, false, slog.New(slog.DiscardHandler))("http://a.example:80")
		many := one(c)
		for _, e := range []*endpoint{fixed, many} {
			for range firstWidth {
				done, o := e.admit(t.Context(), true)
				if o != nil {
					t.Fatalf("refused: %+v", o)
				}
				defer done(nil)
			}
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			o := during(short, e, 0, good)
			if e == many {
				wantRefused(t, o, "busy", soonest, time.Second)
			} else if o == nil || o.Kind != core.NotAttempted {
				t.Errorf("the only endpoint: %+v", o)
			}
			cancel()
			cut, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if o := during(cut, e, 0, good); o == nil || o.Kind != core.NotAttempted {
				t.Errorf("a call that is cut: %+v", o)
			}
			if len(e.queue) > 0 {
				t.Error("somebody waits still")
			}
		}
	})
}

// Nobody is to blame for a request that had no time; an endpoint is that could not be connected to in a second.
func TestWhoIsToBlameWhenTimeIsOver(t *testing.T) {
	failed := verdict{outcome: core.Outcome{Kind: core.Retryable, Code: "connect"}, endpoint: true, trouble: true}
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Minute))
	defer cancel()
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		took time.Duration
		want core.OutcomeKind
	}{
		{t.Context(), 0, core.Retryable}, {t.Context(), time.Minute, core.Retryable},
		{over, 10 * time.Millisecond, core.NotAttempted}, {over, 5 * time.Second, core.Retryable},
		{cut, 10 * time.Millisecond, core.NotAttempted}, {cut, 5 * time.Second, core.NotAttempted},
	} {
		if v := unsent(c.ctx, time.Now().Add(-c.took), failed); v.outcome.Kind != c.want || v.trouble != (c.want == core.Retryable) {
			t.Errorf("context %v, after %v: %+v, want %v", c.ctx.Err(), c.took, v, c.want)
		}
	}
}

// An endpoint whose requests wait because others use up all places does not hang: it has had no chance to answer.
func TestWaitingForOthersIsNoHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limits()
		c.Concurrency = 2
		create := endpointMaker(c, true, slog.New(slog.DiscardHandler))
		hangs, too, fine := create("https://a.example:443"), create("https://b.example:443"), create("https://c.example:443")
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for _, e := range []*endpoint{hangs, hangs, too, too, fine, fine} {
			wg.Go(func() {
				if done, o := e.admit(ctx, false); o == nil {
					time.Sleep(time.Minute)
					done(&overloaded)
				}
			})
			time.Sleep(2 * time.Second)
		}
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		_, o := fine.admit(short, false)
		wantRefused(t, o, "busy", 0, time.Second)
		wg.Wait()
		for _, e := range []*endpoint{hangs, too, fine} {
			if e.used != 0 || e.wire != 0 {
				t.Errorf("%s: %d places are not given back, %d requests not ended", e.name, e.used, e.wire)
			}
		}
	})
}
