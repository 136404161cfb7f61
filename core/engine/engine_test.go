package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

// world is one source, one sink and the connectors that run between them, in a bubble of fake time.
type world struct {
	t      *testing.T
	source *memory.Source
	sink   *memory.Sink
	n      int
}

func newWorld(t *testing.T, partitions int) *world {
	w := &world{t: t, source: memory.NewSource(partitions, time.Now), sink: memory.NewSink()}
	w.source.KeepPublished = true
	return w
}

// insert commits n rows over keys keys, one transaction each.
func (w *world) insert(n, keys int) {
	for range n {
		tx := w.source.Begin()
		tx.Insert(memory.Row{ID: fmt.Sprintf("id-%d", w.n), Key: fmt.Sprintf("k%d", w.n%keys), Keyed: true, Payload: []byte("{}")})
		tx.Commit()
		w.n++
	}
}

func (w *world) connector() *engine.Connector {
	return &engine.Connector{
		Name: "test", Source: w.source, Sink: w.sink, Policy: engine.DefaultPolicy(),
		Owner: engine.NewOwner(), Gate: engine.NewGate(), Log: slog.New(slog.DiscardHandler),
	}
}

// start runs c until the returned function is called, which waits for its end.
func (w *world) start(c *engine.Connector) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}
}

// wait lets fake time pass until ok holds, for at most d.
func (w *world) wait(d time.Duration, what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("after %v: not yet: %s", d, what)
		}
	}
}

func (w *world) states() map[core.State]int {
	states := map[core.State]int{}
	for _, r := range w.source.Rows() {
		states[r.State]++
	}
	return states
}

func TestRowsReachTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		w.insert(5000, 50)
		stop := w.start(w.connector())
		w.wait(10*time.Second, "all published", func() bool { return w.states()[core.Published] == w.n })
		stop()
		if v := w.sink.Violations(); len(v) > 0 {
			t.Error(v)
		}
		if n := len(w.sink.Arrivals()); n != w.n {
			t.Errorf("%d arrivals for %d rows", n, w.n)
		}
	})
}
