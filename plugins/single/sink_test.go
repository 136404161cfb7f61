package single

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

type config struct {
	Port  int             `json:"port" required:"true" min:"1"`
	Token settings.Secret `json:"token"`
}

// script says what connections do, and notes what was done.
type script struct {
	connect func(ctx context.Context) error                     // nil succeeds
	send    func(ctx context.Context, c *link, id string) error // nil confirms

	mu    sync.Mutex
	links []*link  // in the order of Connect
	sent  []string // "connection:id"
}

// link is a connection of a script.
type link struct {
	s      *script
	number int
	gone   chan struct{} // closed by Close
	closes int
}

func (s *script) Connect(ctx context.Context, _ config) (Conn, error) {
	if s.connect != nil {
		if err := s.connect(ctx); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &link{s: s, number: len(s.links) + 1, gone: make(chan struct{})}
	s.links = append(s.links, l)
	return l, nil
}

func (l *link) Send(ctx context.Context, r core.Record) error {
	l.s.mu.Lock()
	l.s.sent = append(l.s.sent, fmt.Sprintf("%d:%s", l.number, r.ID))
	l.s.mu.Unlock()
	if l.s.send == nil {
		return nil
	}
	return l.s.send(ctx, l, r.ID)
}

func (l *link) Close() error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.closes++; l.closes == 1 {
		close(l.gone)
	}
	return nil
}

// wantSent checks what was sent over which connection.
func (s *script) wantSent(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.sent, want) {
		t.Errorf("sent %v, want %v", s.sent, want)
	}
}

// wantOpen checks which connections are open, and that the others were closed once.
func (s *script) wantOpen(t *testing.T, want ...int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []int
	for _, l := range s.links {
		if l.closes == 0 {
			open = append(open, l.number)
		}
		if l.closes > 1 {
			t.Errorf("connection %d was closed %d times", l.number, l.closes)
		}
	}
	if !slices.Equal(open, want) {
		t.Errorf("open are %v, want %v", open, want)
	}
}

// opened returns an open sink that is closed when the test ends.
func (s *script) opened(t *testing.T) *Sink[config] {
	t.Helper()
	sink := New("test", "1", s.Connect)
	if d, err := sink.Configure(t.Context(), []byte(`{"port":1,"token":"hunter2"}`)); err != nil || len(d) > 0 {
		t.Fatal(d, err)
	}
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(context.Background()); err != nil {
			t.Error(err)
		}
		s.wantOpen(t)
	})
	return sink
}

// records makes a batch of "key/id" or "id".
func records(names ...string) []core.Record {
	batch := make([]core.Record, len(names))
	for i, name := range names {
		key, id, keyed := strings.Cut(name, "/")
		batch[i] = core.Record{ID: id, Key: key, Keyed: keyed}
		if !keyed {
			batch[i] = core.Record{ID: name}
		}
	}
	return batch
}

// deliver gives the call so much time and returns the outcomes as "kind scope code", "?" for unknown.
func deliver(t *testing.T, s *Sink[config], d time.Duration, names ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	outcomes, err := s.Deliver(ctx, records(names...))
	if err != nil {
		t.Fatal(err)
	}
	words := make([]string, len(outcomes))
	for i, o := range outcomes {
		words[i] = strings.Join(strings.Fields(fmt.Sprint(o.Kind, " ", o.Scope, " ", o.Code)), " ")
		if o.Unknown {
			words[i] += "?"
		}
		if strings.Contains(o.Code+o.Message, "hunter2") {
			t.Errorf("an outcome shows a secret: %+v", o)
		}
		if o.Kind != core.Delivered && o.Kind != core.NotAttempted && (o.Code == "" || o.Message == "") {
			t.Errorf("an outcome does not say why: %+v", o)
		}
	}
	return words
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the outcomes are\n%q, want\n%q", got, want)
	}
}

// failing answers with an error for the ids it names.
func failing(errs map[string]error) func(context.Context, *link, string) error {
	return func(_ context.Context, _ *link, id string) error { return errs[id] }
}

// TestFailuresStopTheirKey and nothing else, over the same connection.
func TestFailuresStopTheirKey(t *testing.T) {
	s := &script{send: failing(map[string]error{
		"2": Failure{Kind: core.Permanent, Code: "refused", Message: "no: hunter2"},
		"5": fmt.Errorf("in the middle: %w", Failure{Kind: core.Retryable, Unknown: true, Code: "busy", Message: "later"}),
		"7": Failure{Kind: core.Throttled, Scope: core.ScopeKey, RetryAfter: time.Second},
	})}
	got := deliver(t, s.opened(t), time.Minute, "a/1", "a/2", "a/3", "b/4", "5", "6", "/7", "8", "/9", "b/10")
	want(t, got, "delivered", "permanent refused", "not_attempted", "delivered", "retryable busy?", "delivered",
		"throttled key throttled", "delivered", "not_attempted", "delivered")
	s.wantSent(t, "1:1", "1:2", "1:4", "1:5", "1:6", "1:7", "1:8", "1:10")
}

// TestBrokenConnectionIsReplaced: what was sent over it is unknown, and what follows goes over another one.
func TestBrokenConnectionIsReplaced(t *testing.T) {
	s := &script{send: failing(map[string]error{"2": errors.New("EOF after hunter2")})}
	sink := s.opened(t)
	want(t, deliver(t, sink, time.Minute, "1", "a/2", "a/3", "4"), "delivered", "retryable unconfirmed?", "not_attempted", "delivered")
	s.wantSent(t, "1:1", "1:2", "2:4")
	s.wantOpen(t, 2)
}

// TestTwoSilencesStopTheBatch: a destination that takes connections and answers nothing must not cost every record an
// attempt.
func TestTwoSilencesStopTheBatch(t *testing.T) {
	broken := errors.New("EOF")
	s := &script{send: failing(map[string]error{"1": broken, "3": broken, "4": broken})}
	want(t, deliver(t, s.opened(t), time.Minute, "1", "2", "3", "4", "5", "6"), "retryable unconfirmed?", "delivered",
		"retryable unconfirmed?", "retryable unconfirmed?", "not_attempted", "not_attempted")
}

// TestSinkFailuresStopTheBatch.
func TestSinkFailuresStopTheBatch(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"scope":     {Failure{Kind: core.Retryable, Scope: core.ScopeSink, Code: "login", Message: "who?"}, "retryable sink login"},
		"throttled": {Failure{Kind: core.Throttled, Code: "slow"}, "throttled slow"},
		"not sent":  {fmt.Errorf("write: %w", core.ErrNotSent), "retryable sink not_sent"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{send: failing(map[string]error{"2": c.err})}
			want(t, deliver(t, s.opened(t), time.Minute, "1", "2", "3", "a/4"), "delivered", c.want, "not_attempted", "not_attempted")
		})
	}
}

// TestNoConnectionIsNoRecordsFault, and is tried once in a call.
func TestNoConnectionIsNoRecordsFault(t *testing.T) {
	tries := 0
	s := &script{}
	s.send = func(context.Context, *link, string) error {
		s.connect = func(context.Context) error {
			tries++
			return Failure{Kind: core.Permanent, Code: "login", Message: "hunter2 is wrong"}
		}
		return errors.New("reset")
	}
	want(t, deliver(t, s.opened(t), time.Minute, "1", "2", "3"), "retryable unconfirmed?", "retryable sink connect", "not_attempted")
	if tries != 1 {
		t.Errorf("%d tries", tries)
	}
}

// TestTimeIsDivided: an answer after the end of the call would be lost, so what cannot be done in half the time is left.
func TestTimeIsDivided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{send: func(context.Context, *link, string) error { time.Sleep(time.Second); return nil }}
		sink := s.opened(t)
		want(t, deliver(t, sink, 5*time.Second, "1", "2", "3", "4", "5"), "delivered", "delivered", "delivered", "not_attempted", "not_attempted")
		done, cancel := context.WithCancel(t.Context())
		outcomes, err := sink.Deliver(done, records("6"))
		if err != nil || outcomes[0].Kind != core.Delivered {
			t.Errorf("without a deadline: %v, %v", outcomes, err)
		}
		cancel()
		outcomes, err = sink.Deliver(done, records("7"))
		if err != nil || outcomes[0].Kind != core.NotAttempted {
			t.Errorf("after the end: %v, %v", outcomes, err)
		}
	})
}

// TestSilentDestination: the connection is closed under a Send that waits, when its time is over. (That its answer is heard then
// is up to the plugin's server, which ends the sink's time early.)
func TestSilentDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{send: func(_ context.Context, l *link, id string) error {
			if id == "2" {
				<-l.gone
				return errors.New("use of a closed connection")
			}
			return nil
		}}
		sink := s.opened(t)
		start := time.Now()
		want(t, deliver(t, sink, 30*time.Second, "1", "2", "3"), "delivered", "retryable timeout?", "not_attempted")
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("took %v", took)
		}
		start = time.Now()
		want(t, deliver(t, sink, time.Second, "2"), "retryable timeout?")
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v of a second", took)
		}
		s.wantOpen(t)
	})
}

// TestConfirmedAtTheLastMoment: it counts although the connection was closed meanwhile, and that one is not used again.
func TestConfirmedAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{send: func(ctx context.Context, _ *link, id string) error {
			if id == "1" {
				<-ctx.Done()
			}
			return nil
		}}
		sink := s.opened(t)
		want(t, deliver(t, sink, 10*time.Second, "1"), "delivered")
		want(t, deliver(t, sink, 10*time.Second, "2"), "delivered")
		s.wantSent(t, "1:1", "2:2")
	})
}

// TestSlowConnect is given up by itself.
func TestSlowConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		s.send = func(context.Context, *link, string) error {
			s.connect = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			return errors.New("reset")
		}
		sink, start := s.opened(t), time.Now()
		want(t, deliver(t, sink, time.Minute, "1", "2"), "retryable unconfirmed?", "retryable sink connect")
		if took := time.Since(start); took != connectTimeout {
			t.Errorf("took %v", took)
		}
	})
}

// TestConnectionsAreKept for the next call, but not for ever, and all of them go when one breaks.
func TestConnectionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{send: func(_ context.Context, _ *link, id string) error {
			if id == "bad" {
				return errors.New("reset")
			}
			time.Sleep(time.Second)
			return nil
		}}
		sink := s.opened(t)
		three := func() {
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { want(t, deliver(t, sink, time.Minute, "x"), "delivered") })
			}
			wg.Wait()
		}
		three()
		three()
		s.wantOpen(t, 1, 2, 3)
		time.Sleep(maxRest / 2)
		want(t, deliver(t, sink, time.Minute, "y"), "delivered")
		time.Sleep(maxRest / 2)
		want(t, deliver(t, sink, time.Minute, "y"), "delivered")
		if s.mu.Lock(); len(s.links) != 3 {
			t.Errorf("%d connections were opened", len(s.links))
		}
		open := 0
		for _, l := range s.links {
			open += 1 - l.closes
		}
		s.mu.Unlock()
		if open != 1 {
			t.Errorf("%d connections are open, two of them unused for %v", open, maxRest)
		}
		time.Sleep(maxRest)
		want(t, deliver(t, sink, time.Minute, "z"), "delivered")
		s.wantOpen(t, 4)
		three()
		s.wantOpen(t, 4, 5, 6)
		want(t, deliver(t, sink, time.Minute, "bad"), "retryable unconfirmed?")
		s.wantOpen(t)
	})
}
