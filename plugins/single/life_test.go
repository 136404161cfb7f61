package single

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connectd/connectd/core"
)

// pinging is a link that can be asked.
type pinging struct {
	*link
	ping func(ctx context.Context) error
}

func (p *pinging) Ping(ctx context.Context) error { return p.ping(ctx) }

func TestHealthAsksAConnectionAtRest(t *testing.T) {
	s := &script{}
	stale := map[int]bool{}
	sink := New("test", "1", func(ctx context.Context, c config) (Conn, error) {
		conn, err := s.Connect(ctx, c)
		if err != nil {
			return nil, err
		}
		l := conn.(*link)
		return &pinging{l, func(context.Context) error {
			if stale[l.number] {
				return errors.New("EOF, said hunter2")
			}
			return nil
		}}, nil
	})
	configure(t, sink)
	if err := errors.Join(sink.Open(t.Context()), sink.Health(t.Context()), sink.Health(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.wantOpen(t, 1)
	stale[1] = true
	if err := sink.Health(t.Context()); err != nil {
		t.Errorf("a new connection would have answered: %v", err)
	}
	s.wantOpen(t, 2)
	stale[2], stale[3] = true, true
	if err := sink.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "ping: EOF, said ***") {
		t.Errorf("Health without an answer: %v", err)
	}
	s.wantOpen(t)
	s.connect = func(context.Context) error { return errors.New("no route") }
	if err := sink.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "connect: no route") {
		t.Errorf("Health without a connection: %v", err)
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestConnectionIsAskedBeforeUse when it has rested for a while: a server that was restarted costs no record an attempt, and
// one that hangs costs none either.
func TestConnectionIsAskedBeforeUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		var broken, hangs bool
		sink := New("test", "1", func(ctx context.Context, c config) (Conn, error) {
			conn, err := s.Connect(ctx, c)
			if err != nil {
				return nil, err
			}
			l := conn.(*link)
			return &pinging{l, func(context.Context) error {
				if hangs {
					<-l.gone
				}
				if hangs || broken && l.number == 1 {
					return errors.New("EOF")
				}
				return nil
			}}, nil
		})
		configure(t, sink)
		if err := sink.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(maxRest - time.Second)
		want(t, deliver(t, sink, time.Minute, "1"), "delivered")
		time.Sleep(trusted)
		broken = true
		want(t, deliver(t, sink, time.Minute, "2"), "delivered") // a ping for each record would double its time
		time.Sleep(trusted + 1)
		want(t, deliver(t, sink, time.Minute, "3"), "delivered")
		s.wantSent(t, "1:1", "1:2", "2:3")
		time.Sleep(trusted + 1)
		hangs = true
		s.connect = func(context.Context) error { return errors.New("no route") }
		start := time.Now()
		want(t, deliver(t, sink, time.Minute, "4"), "retryable sink connect")
		if took := time.Since(start); took != connectTimeout {
			t.Errorf("took %v", took)
		}
		if err := sink.Close(t.Context()); err != nil {
			t.Error(err)
		}
		s.wantOpen(t)
	})
}

// TestHealthWithoutPing can only say no, and does not pile up connections.
func TestHealthWithoutPing(t *testing.T) {
	s := &script{}
	sink := s.opened(t)
	for range 3 {
		if err := sink.Health(t.Context()); !errors.Is(err, core.ErrNoHealth) {
			t.Errorf("Health: %v", err)
		}
	}
	s.wantOpen(t, 4)
	s.connect = func(context.Context) error { return errors.New("no route") }
	if err := sink.Health(t.Context()); err == nil || errors.Is(err, core.ErrNoHealth) {
		t.Errorf("Health without a connection: %v", err)
	}
}

func configure(t *testing.T, sink *Sink[config]) {
	t.Helper()
	if d, err := sink.Configure(t.Context(), []byte(`{"port":1,"token":"hunter2"}`)); err != nil || len(d) > 0 {
		t.Fatal(d, err)
	}
}

func TestLife(t *testing.T) {
	s := &script{}
	sink := New("test", "1", s.Connect)
	if _, err := sink.Deliver(t.Context(), records("1")); !errors.Is(err, core.ErrNotSent) {
		t.Errorf("Deliver before Open: %v", err)
	}
	if err := sink.Health(t.Context()); err == nil {
		t.Error("Health before Open is content")
	}
	if err := sink.Open(t.Context()); err == nil {
		t.Error("Open before Configure is content")
	}
	configure(t, sink)
	s.connect = func(context.Context) error { return errors.New("refused, said hunter2") }
	if err := sink.Open(t.Context()); err == nil || err.Error() != "connect: refused, said ***" {
		t.Errorf("Open without a destination: %v", err)
	}
	s.connect = nil
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sink.Open(t.Context()); err == nil {
		t.Error("a second Open is content")
	}
	if err := errors.Join(sink.Close(t.Context()), sink.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if _, err := sink.Deliver(t.Context(), records("1")); !errors.Is(err, core.ErrNotSent) {
		t.Errorf("Deliver after Close: %v", err)
	}
	s.wantOpen(t)
}

// TestCloseEndsWhatIsOnItsWay, and a connection that is opened at that moment.
func TestCloseEndsWhatIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{send: func(_ context.Context, l *link, _ string) error { <-l.gone; return errors.New("closed") }}
		sink := s.opened(t)
		calls := make(chan []string, 2)
		go func() { calls <- deliver(t, sink, time.Minute, "1") }()
		synctest.Wait()
		s.connect = func(context.Context) error { time.Sleep(time.Second); return nil }
		go func() { calls <- deliver(t, sink, time.Minute, "2") }()
		synctest.Wait()
		if err := sink.Close(t.Context()); err != nil {
			t.Error(err)
		}
		want(t, <-calls, "retryable unconfirmed?")
		want(t, <-calls, "retryable sink connect")
		s.wantOpen(t)
	})
}

// TestNothingIsSentAfterClose, also when a batch is on its way.
func TestNothingIsSentAfterClose(t *testing.T) {
	s := &script{}
	sink := s.opened(t)
	s.send = func(context.Context, *link, string) error { return sink.Close(context.Background()) }
	want(t, deliver(t, sink, time.Minute, "1", "2"), "delivered", "retryable sink connect")
	s.wantSent(t, "1:1")
}

// stuck is a connection that cannot be closed.
type stuck struct {
	*link
	release chan struct{}
}

func (s *stuck) Close() error {
	<-s.release
	return errors.Join(s.link.Close(), errors.New("late, said hunter2"))
}

func TestCloseThatHangs(t *testing.T) {
	for _, released := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, release := &script{}, make(chan struct{})
			sink := New("test", "1", func(ctx context.Context, c config) (Conn, error) {
				conn, err := s.Connect(ctx, c)
				return &stuck{conn.(*link), release}, err
			})
			configure(t, sink)
			if err := sink.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			says := context.DeadlineExceeded.Error()
			if released {
				close(release)
				says = "close: late, said ***"
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := sink.Close(ctx); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("Close: %v, want %q", err, says)
			}
			if !released {
				close(release)
			}
		})
	}
}

// TestConnectReturnsBoth: a connection that came with an error is closed, and none without an error is one.
func TestConnectReturnsBoth(t *testing.T) {
	s := &script{}
	sink := New("test", "1", func(ctx context.Context, c config) (Conn, error) {
		conn, _ := s.Connect(ctx, c)
		return conn, errors.New("who are you?")
	})
	configure(t, sink)
	if err := sink.Open(t.Context()); err == nil || err.Error() != "connect: who are you?" {
		t.Errorf("Open: %v", err)
	}
	s.wantOpen(t)
	sink = New("test", "1", func(context.Context, config) (Conn, error) { return nil, nil })
	configure(t, sink)
	if err := sink.Open(t.Context()); err == nil {
		t.Error("Open without a connection is content")
	}
}

func TestDescription(t *testing.T) {
	sink := New("test", "2", (&script{}).Connect)
	sink.Limits.MaxRecordBytes = 7
	d, err := sink.Describe(t.Context())
	if err != nil || d.Name != "test" || d.Version != "2" || d.Limits.MaxRecordBytes != 7 || d.Prefers.MaxRecords != 1 ||
		!strings.Contains(string(d.Schema), `"port"`) {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestCheck(t *testing.T) {
	sink := New("test", "1", (&script{}).Connect)
	sink.Check = func(c config) []core.Diagnostic {
		switch c.Port {
		case 22:
			return []core.Diagnostic{{Pointer: "/port", Message: "is not ours: " + c.Token.Reveal()}}
		case 80:
			return []core.Diagnostic{{Pointer: "/port", Message: "is unusual", Warning: true}}
		default:
			return nil
		}
	}
	for text, want := range map[string]string{
		`{"port":0}`:                     "must be",
		`{"port":22,"token":"hunter2"}`:  "is not ours: ***",
		`{"port":22,"token":"","por":1}`: "is not a known setting",
	} {
		d, err := sink.Configure(t.Context(), []byte(text))
		if err != nil || len(d) != 1 || !strings.Contains(d[0].Message, want) {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
		if err := sink.Open(t.Context()); err == nil {
			t.Errorf("%s was kept", text)
		}
	}
	if d, err := sink.Configure(t.Context(), []byte(`{"port":80}`)); err != nil || len(d) != 1 || !d[0].Warning {
		t.Errorf("%+v, %v", d, err)
	}
	if err := errors.Join(sink.Open(t.Context()), sink.Close(t.Context())); err != nil {
		t.Errorf("a warning is no reason to refuse: %v", err)
	}
}

// TestFailureIsNeverADelivery, whatever its author forgot.
func TestFailureIsNeverADelivery(t *testing.T) {
	for _, c := range []struct{ in, want core.Outcome }{
		{core.Outcome{}, core.Outcome{Kind: core.Retryable, Unknown: true, Code: "retryable"}},
		{core.Outcome{Kind: core.Delivered}, core.Outcome{Kind: core.Retryable, Unknown: true, Code: "retryable"}},
		{core.Outcome{Kind: 77}, core.Outcome{Kind: core.Retryable, Unknown: true, Code: "retryable"}},
		{core.Outcome{Kind: core.Permanent, Unknown: true, RetryAfter: -1}, core.Outcome{Kind: core.Permanent, Code: "permanent"}},
		{core.Outcome{Kind: core.Throttled, RetryAfter: 5, Code: "x"}, core.Outcome{Kind: core.Throttled, RetryAfter: 5, Code: "x"}},
	} {
		got := Failure(c.in).outcome()
		c.want.Message = "the destination gave no reason"
		if got != c.want {
			t.Errorf("%+v became %+v, want %+v", c.in, got, c.want)
		}
	}
	if text := (Failure{Kind: core.Permanent, Code: "a", Message: "b"}).Error(); text != "a: b" {
		t.Error(text)
	}
}
