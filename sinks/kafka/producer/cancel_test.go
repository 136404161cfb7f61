package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A call that ends while the broker thinks says of each message whether it may be written, returns before its deadline,
// and sends nothing afterwards; the lane goes on with other calls.
func TestCallLeaves(t *testing.T) {
	for _, how := range []string{"deadline", "cancelled"} {
		t.Run(how, func(t *testing.T) {
			c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
			p := opened(t, c.ListenAddrs(), func(c *Config) { c.MaxBatchBytes = minBatchBytes })
			written(t, p.Produce(within(t, patience), numbered("orders", 1)))
			arrived, release := heldProduce(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if how == "cancelled" {
				ctx, cancel = context.WithCancel(t.Context())
				defer cancel()
				go func() {
					<-arrived
					cancel()
				}()
			}
			results := p.Produce(ctx, numbered("orders", 100)) // more than a batch
			if ctx.Err() != nil && how == "deadline" {
				t.Error("it returned after its deadline")
			}
			unknown, waiting := 0, 0
			for i, r := range results {
				switch {
				case r.Err == nil || r.Err.Class != Retry || !errors.Is(r.Err, map[string]error{"deadline": errTimeUp, "cancelled": context.Canceled}[how]):
					t.Fatalf("message %d: %v", i, r.Err)
				case r.Err.Unknown && !r.NotSent && waiting == 0:
					unknown++
				case !r.Err.Unknown && r.NotSent:
					waiting++
				default:
					t.Errorf("message %d: %+v, not sent %v", i, r.Err, r.NotSent)
				}
			}
			if unknown == 0 || waiting == 0 {
				t.Errorf("%d unknown, %d not sent", unknown, waiting)
			}
			release()
			written(t, p.Produce(within(t, patience), []*Message{message("orders", "k", "after")}))
			records := log(t, c.ListenAddrs(), "orders")[0]
			if n := len(records); n != unknown+2 {
				t.Errorf("%d records in the log: %d were unknown, one before, one after", n, unknown)
			}
		})
	}
}

// heldProduce makes the next produce request wait until it is released, which waits until it is handled: a fake cluster
// that is closed while a request waits leaves a goroutine behind.
func heldProduce(t *testing.T, c *kfake.Cluster) (arrived <-chan struct{}, release func()) {
	here, leave, passed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var held kmsg.Request
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if held != nil {
			return nil, nil, false
		}
		held = r
		close(here)
		c.SleepControl(func() { <-leave })
		return nil, nil, false
	})
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if r == held {
			c.DropControl()
			close(passed)
		}
		return nil, nil, false
	})
	release = sync.OnceFunc(func() {
		close(leave)
		select {
		case <-passed:
		case <-time.After(patience):
			t.Error("the request that was held is not handled")
		}
	})
	t.Cleanup(release)
	return here, release
}

// A caller has its memory back when Produce returns, whatever is still on its way.
func TestMemoryIsTheCallersAgain(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "orders"))
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.BackoffMax = 5 * time.Millisecond })
	written(t, p.Produce(within(t, patience), numbered("orders", 1)))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.CorruptMessage, Count: -1})
	for range 30 {
		messages := numbered("orders", 60)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		p.Produce(ctx, messages)
		cancel()
		for _, m := range messages {
			clear(m.Value) // the race detector watches
			m.Key, m.Value = nil, nil
		}
	}
}

// Calls that come while a batch is on its way share the next batch, and each has its own results.
func TestCallsShareBatches(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs())
	written(t, p.Produce(within(t, patience), numbered("orders", 1)))
	arrived, release := heldProduce(t, c)
	requests := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1})
	results := make(chan []Result)
	produce := func(key string) {
		results <- p.Produce(within(t, patience), []*Message{message("orders", key, key+"1"), message("orders", key, key+"2")})
	}
	go produce("first")
	<-arrived
	for i := range 10 {
		go produce(fmt.Sprint("k", i))
	}
	l := p.topics["orders"].lanes[0]
	eventually(t, "the calls wait in the lane", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == 20
	})
	release()
	for range 11 {
		r := <-results
		written(t, r)
		if r[1].Offset <= r[0].Offset {
			t.Errorf("offsets %d, %d", r[0].Offset, r[1].Offset)
		}
	}
	if n := requests.Hits(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// One call's failure leaves the others' messages in the same batch alone.
func TestSharedBatchOneCallLeaves(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.BackoffMax = 20 * time.Millisecond })
	written(t, p.Produce(within(t, patience), numbered("orders", 1)))
	arrived, release := heldProduce(t, c)
	short, long := make(chan []Result, 1), make(chan []Result, 1)
	go p.Produce(within(t, patience), []*Message{message("orders", "zero", "zero")})
	<-arrived
	shortCtx, cancel := context.WithCancel(t.Context())
	go func() { short <- p.Produce(shortCtx, []*Message{message("orders", "s", "short")}) }()
	go func() { long <- p.Produce(within(t, patience), []*Message{message("orders", "l", "long")}) }()
	l := p.topics["orders"].lanes[0]
	eventually(t, "both calls wait in the lane", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == 2
	})
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	release()
	if err := fault.Wait(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	cancel()
	if r := (<-short)[0]; r.Err == nil || r.Err.Unknown {
		t.Errorf("the short call: %+v", r.Err)
	}
	fault.Remove()
	written(t, <-long)
	if got := values(log(t, c.ListenAddrs(), "orders")[0]); got != "0 zero long" && got != "0 long" {
		t.Errorf("the log is %q", got)
	}
}

// Close ends what runs when its own time is up, and says so; a second Close and a late call are harmless.
func TestClose(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs())
	arrived, _ := heldProduce(t, c)
	results := make(chan []Result, 1)
	go func() { results <- p.Produce(within(t, patience), numbered("orders", 1)) }()
	<-arrived
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	if r := (<-results)[0]; r.Err == nil || !r.Err.Unknown || !errors.Is(r.Err, ErrClosed) {
		t.Errorf("the running call: %+v", r.Err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("again: %v", err)
	}
	if r := p.Produce(t.Context(), numbered("orders", 2)); r[1].Err == nil || !errors.Is(r[1].Err, ErrClosed) || r[1].Err.Class != Sink {
		t.Errorf("a late call: %+v", r)
	}
	if err := p.Health(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Health: %v", err)
	}
	if err := p.Open(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Open: %v", err)
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come true that %s", what)
		}
	}
}

// A batch whose call has given up may reach the log late. Before its successors it does not make the broker take them for
// copies of it; after them it is refused.
func TestLateWrite(t *testing.T) {
	for when, want := range map[string]string{"before": "0 1 2 3", "after": "0 2 3"} {
		t.Run(when, func(t *testing.T) {
			c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
			p := opened(t, c.ListenAddrs(), func(c *Config) { c.RequestTimeout = 300 * time.Millisecond })
			produce := func(value string) *Error {
				return p.Produce(within(t, 200*time.Millisecond), []*Message{message("orders", "k", value)})[0].Err
			}
			handled := func(n int64) {
				eventually(t, "the log has that many", func() bool { return endOffsets(t.Context(), t, c.ListenAddrs(), "orders")[0] == n })
			}
			if err := produce("0"); err != nil {
				t.Fatal(err)
			}
			_, release := heldProduce(t, c)
			if err := produce("1"); err == nil || !err.Unknown {
				t.Fatalf("%+v", err)
			}
			eventually(t, "the lane has given up", func() bool { return !p.topics["orders"].lanes[0].busy() })
			if when == "before" {
				release()
				handled(2)
			}
			if err := produce("2"); err != nil {
				t.Fatal(err)
			}
			if when == "after" {
				release()
			}
			if err := produce("3"); err != nil {
				t.Fatal(err)
			}
			if got := values(log(t, c.ListenAddrs(), "orders")[0]); got != want {
				t.Errorf("the log is %q, want %q", got, want)
			}
		})
	}
}
