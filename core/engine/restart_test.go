package engine_test

import (
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// The row alone says when it is due, so that a worker's end forgets no retry, and hastens none:
// https://github.com/frain-dev/convoy/issues/1667
func TestARetryOutlivesItsWorker(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.add("later", "k")
		w.sink.Decide(func(core.Record) core.Outcome { return core.Outcome{Kind: core.Retryable, RetryAfter: time.Hour} })
		stop := w.start(w.connector(nil))
		w.wait(time.Minute, "a first attempt", func() bool { return w.row("later").Attempts == 1 })
		due := w.row("later").AvailableAt
		stop()
		w.sink.Decide(nil)
		for range 3 {
			stop := w.start(w.connector(nil))
			time.Sleep(10 * time.Minute)
			stop()
		}
		if n := w.sent()["later"]; n != 1 {
			w.t.Fatalf("sent %d times before it was due", n)
		}
		defer w.start(w.connector(nil))()
		time.Sleep(time.Until(due) - time.Second)
		if n := w.sent()["later"]; n != 1 {
			t.Errorf("sent %d times a second before it was due", n)
		}
		w.publishAll(5 * time.Second)
	})
}

// While the sink is away neither failed rows nor fresh ones make the loop spin: https://github.com/zarusz/SlimMessageBus/pull/475
func TestAnOutageIsNoLoop(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		w.insert(300, 100)
		w.sink.Decide(func(core.Record) core.Outcome { return core.Outcome{Kind: core.Retryable, Code: "503"} })
		f := &faultySource{Source: w.source}
		c := w.connector(nil)
		c.Source = f
		defer w.start(c)()
		for range 60 {
			w.insert(10, 100)
			time.Sleep(time.Minute)
		}
		if n := len(w.sink.Arrivals()); n > 10_000 {
			t.Errorf("%d sends of 900 rows in an hour", n)
		}
		if n := w.sink.Calls(); n > 2000 {
			t.Errorf("%d calls in an hour", n)
		}
		if n := f.count("step"); n > 5000 {
			t.Errorf("%d transactions in an hour", n)
		}
	})
}
