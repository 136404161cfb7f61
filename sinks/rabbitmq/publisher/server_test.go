package publisher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/connectd/connectd/scripts/services"
)

// These change a server for everybody, so they have one of their own.
func TestABrokerInTrouble(t *testing.T) {
	own := services.Own(t, "rabbitmq")
	// Declared long before it is needed: the server has it on its disk after a second or two.
	queue := brokerAt(t, own.RabbitMQ()).queue(nil)
	t.Run("it wants no messages", func(t *testing.T) { testBlocked(t, own) })
	t.Run("it blocks a connection for too long", func(t *testing.T) { testBlockedTooLong(t, own) })
	t.Run("a queue does not answer", func(t *testing.T) { testSilentQueue(t, own) })
	t.Run("a message is too large for it", func(t *testing.T) { testTooLarge(t, own) })
	t.Run("it closes the connection", func(t *testing.T) { testForcedClose(t, own) })
	t.Run("it is killed", func(t *testing.T) { testKilled(t, own, queue) })
}

func alarm(own *services.Servers, on bool) {
	what := "clear_alarm({resource_limit,memory,node()})"
	if on {
		what = "set_alarm({{resource_limit,memory,node()},[]})"
	}
	own.RabbitMQCtl("eval", "rabbit_alarm:"+what+".")
}

// R7: the broker stops reading. Whoever writes blocks, and a connection learns of it only when it has written.
func testBlocked(t *testing.T, own *services.Servers) {
	b := brokerAt(t, own.RabbitMQ())
	queue := b.queue(nil)
	p := opened(t, configFor(t, own.RabbitMQ()))
	if got := outcomes(publish(t, p, to(queue, "k", "first"))); got[0] != "ok" {
		t.Fatal(got)
	}
	alarm(own, true)
	var messages []*Message
	for i := range 2000 {
		m := to(queue, fmt.Sprint(i), fmt.Sprint("blocked ", i))
		m.Publishing.Body = make([]byte, 10_000)
		messages = append(messages, m)
	}
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	results := p.Publish(ctx, messages)
	if took := time.Since(start); took > limit {
		t.Fatalf("the call took %v", took)
	}
	got := count(results)
	t.Log(got)
	// Whether the broker says why within the call is its affair: a busy one may say so later.
	if got["ok"] > 0 || got["blocked"]+got["connection"] == 0 || got["blocked?"]+got["connection?"] == 0 {
		t.Fatal(got)
	}

	// From now on it is known, also after the connection was made anew: nothing is sent, and the answer comes at once.
	eventually(t, "it is known", func() bool { return publish(t, p, to(queue, "k", "known"))[0].Err.Kind == KindBlocked })
	for range 50 {
		start := time.Now()
		if got := outcomes(publish(t, p, to(queue, "k", "never"))); got[0] != "blocked" || time.Since(start) > time.Second {
			t.Fatal(got, time.Since(start))
		}
	}
	if err := p.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "blocked") {
		t.Fatal(err)
	}
	other := opened(t, configFor(t, own.RabbitMQ())) // connects, and knows it at once
	if got := outcomes(publish(t, other, to(queue, "k", "never"))); got[0] != "blocked" {
		t.Fatal(got)
	}

	start = time.Now()
	shut(t, other)
	if took := time.Since(start); took > 5*time.Second {
		t.Fatalf("Close took %v", took)
	}

	alarm(own, false)
	eventually(t, "it goes on", func() bool { return publish(t, p, to(queue, "k", "last"))[0].Err == nil })
	stored := map[string]bool{}
	for _, id := range ids(b.read(queue, 2)) {
		stored[id] = true
	}
	for i, r := range results {
		if id := fmt.Sprint("blocked ", i); stored[id] && !r.Err.Unknown {
			t.Fatalf("%s is in the queue, and was said to be %s", id, outcome(r))
		}
	}
	if stored["never"] || !stored["last"] {
		t.Fatal(stored["never"], stored["last"])
	}
}

func testBlockedTooLong(t *testing.T, own *services.Servers) {
	b := brokerAt(t, own.RabbitMQ())
	queue := b.queue(nil)
	c := configFor(t, own.RabbitMQ())
	c.BlockedTimeout = 500 * time.Millisecond
	var connections atomic.Int64
	login := c.Credentials
	c.Credentials = func() (string, string, error) { connections.Add(1); return login() }
	p := opened(t, c)
	alarm(own, true)
	defer alarm(own, false)
	publish(t, p, to(queue, "k", "1"))
	eventually(t, "a new connection is made", func() bool { return connections.Load() >= 3 })
}

// A queue whose process hangs confirms nothing; other queues on the same channel do.
func testSilentQueue(t *testing.T, own *services.Servers) {
	b := brokerAt(t, own.RabbitMQ())
	silent, queue := b.queue(nil), b.queue(nil)
	c := configFor(t, own.RabbitMQ())
	c.Lanes, c.ConfirmTimeout = 1, 3*time.Second
	p := opened(t, c)
	pid := fmt.Sprintf(`{ok,Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>,queue,<<"%s">>)), sys:%%s(amqqueue:get_pid(Q)).`, silent)
	own.RabbitMQCtl("eval", fmt.Sprintf(pid, "suspend"))
	results := make(chan []Result)
	go func() { results <- publish(t, p, to(silent, "s", "s1"), to(silent, "s", "s2")) }()
	for i := range 50 { // one after the other, each within a moment
		start := time.Now()
		if got := outcomes(publish(t, p, to(queue, "k", fmt.Sprint(i)))); got[0] != "ok" {
			t.Fatal(got)
		}
		if took := time.Since(start); took > time.Second {
			t.Fatalf("a message to another queue took %v", took)
		}
	}
	if got := outcomes(<-results); got[0] != "timeout?" || got[1] != "not_attempted" {
		t.Fatal(got)
	}
	if got := outcomes(publish(t, p, to(queue, "k", "later"))); got[0] != "ok" {
		t.Fatal(got)
	}
	own.RabbitMQCtl("eval", fmt.Sprintf(pid, "resume"))
	eventually(t, "it goes on", func() bool { return publish(t, p, to(silent, "s", "s1"))[0].Err == nil })
}

// The broker's limit is its own; it closes the channel.
func testTooLarge(t *testing.T, own *services.Servers) {
	b := brokerAt(t, own.RabbitMQ())
	queue := b.queue(nil)
	limit := func(bytes int) {
		own.RabbitMQCtl("eval", fmt.Sprintf("application:set_env(rabbit, max_message_size, %[1]d), persistent_term:put(max_message_size, %[1]d).", bytes))
	}
	limit(2000)
	defer limit(134217728)
	p := opened(t, configFor(t, own.RabbitMQ()))
	large := to(queue, "large", "large")
	large.Publishing.Body = make([]byte, 3000)
	results := publish(t, p, to(queue, "a", "1"), large, to(queue, "b", "2"), to(queue, "large", "behind"))
	got := count(results)
	if got["ok"] != 2 || results[1].Err == nil || results[1].Err.Kind != KindPrecondition || got["not_attempted"] != 1 {
		t.Fatal(got, results[1].Err)
	}
	t.Log(results[1].Err)
}

// write publishes the messages of some keys again and again, until all are delivered, as an engine does.
func write(t *testing.T, p *Publisher, queue string, writer, keys, each int, unknown *atomic.Int64) {
	next := make([]int, keys)
	const patience = 2 * time.Minute
	deadline := time.Now().Add(patience)
	var last *Error
	for left := keys * each; left > 0; {
		if time.Now().After(deadline) {
			t.Errorf("%d messages are not delivered: %v", left, last)
			return
		}
		var messages []*Message
		var of []int
		for k := range keys {
			for n := next[k]; n < min(next[k]+3, each); n++ {
				key := fmt.Sprintf("%d-%d", writer, k)
				messages, of = append(messages, to(queue, key, fmt.Sprintf("%s/%d", key, n))), append(of, k)
			}
		}
		failed := false
		for i, r := range publish(t, p, messages...) {
			if r.Err == nil {
				next[of[i]]++
				left--
				continue
			}
			failed, last = true, r.Err
			if r.Err.Unknown {
				unknown.Add(1)
			}
		}
		if failed {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// wantEach fails unless each message of the writers is there, each key's in order once repeats are left out.
func wantEach(t *testing.T, deliveries []amqp.Delivery, writers, keys, each int) {
	t.Helper()
	last, repeats := map[string]int{}, 0
	for _, id := range ids(deliveries) {
		key, number, _ := strings.Cut(id, "/")
		var n int
		fmt.Sscan(number, &n)
		switch {
		case n == last[key]:
			last[key]++
		case n > last[key]:
			t.Fatalf("%s came before %d", id, last[key])
		default:
			repeats++
		}
	}
	for w := range writers {
		for k := range keys {
			if n := last[fmt.Sprintf("%d-%d", w, k)]; n != each {
				t.Fatalf("%d of %d messages of a key", n, each)
			}
		}
	}
	t.Logf("%d messages, %d repeats", len(deliveries), repeats)
}

func testForcedClose(t *testing.T, own *services.Servers) {
	b := brokerAt(t, own.RabbitMQ())
	queue := b.queue(amqp.Table{"x-queue-type": "quorum"})
	p := opened(t, configFor(t, own.RabbitMQ()))
	const writers, keys, each = 4, 20, 300
	var all sync.WaitGroup
	var unknown atomic.Int64
	for w := range writers {
		all.Go(func() { write(t, p, queue, w, keys, each, &unknown) })
	}
	eventually(t, "something is in the queue", func() bool { return b.length(queue) > 0 })
	for range 3 {
		own.RabbitMQCtl("close_all_connections", "for a test")
	}
	all.Wait()
	t.Log(unknown.Load(), "unknown")
	wantEach(t, brokerAt(t, own.RabbitMQ()).read(queue, writers*keys*each), writers, keys, each)
}

// The queue is a classic one. A quorum queue of RabbitMQ 3.10 that gets messages while it starts may stay without a leader.
func testKilled(t *testing.T, own *services.Servers, queue string) {
	b := brokerAt(t, own.RabbitMQ())
	p := opened(t, configFor(t, own.RabbitMQ()))
	const writers, keys, each = 4, 20, 300
	var all sync.WaitGroup
	var unknown atomic.Int64
	for w := range writers {
		all.Go(func() { write(t, p, queue, w, keys, each, &unknown) })
	}
	eventually(t, "something is in the queue", func() bool { return b.length(queue) > 500 })
	own.Kill("rabbitmq")
	own.Start("rabbitmq")
	all.Wait()
	t.Log(unknown.Load(), "unknown")
	wantEach(t, brokerAt(t, own.RabbitMQ()).read(queue, writers*keys*each), writers, keys, each)
}
