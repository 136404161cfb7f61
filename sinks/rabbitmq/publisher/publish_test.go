package publisher

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestAMessageArrivesAsItWasSent(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	p := opened(t, configFor(t, rabbit(t)))
	m := to(queue, "k", "id-1")
	m.Publishing.Headers = amqp.Table{"text": "ä", "number": int64(1) << 40, "list": []any{"x", int32(3)}, "yes": true}
	m.Publishing.Type, m.Publishing.CorrelationId, m.Publishing.AppId = "type", "correlation", "app"
	m.Publishing.ContentType, m.Publishing.ContentEncoding = "text/plain", "identity"
	m.Publishing.Timestamp, m.Publishing.Priority, m.Publishing.Expiration = time.Unix(1700000000, 0), 3, "60000"
	m.Publishing.Body = make([]byte, 300_000) // three frames
	for i := range m.Publishing.Body {
		m.Publishing.Body[i] = byte(i * 7)
	}
	if got := outcomes(publish(t, p, m)); !slices.Equal(got, []string{"ok"}) {
		t.Fatal(got)
	}
	all := b.read(queue, 1)
	if len(all) != 1 {
		t.Fatalf("%d messages", len(all))
	}
	d := all[0]
	got := amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, UserId: d.UserId, AppId: d.AppId, Body: d.Body,
	}
	if want := fmt.Sprint(m.Publishing); fmt.Sprint(got) != want {
		t.Fatalf("got %.300v\nwant %.300v", got, want)
	}
}

// Eight calls at a time, each with its own keys, on lanes that they share.
func TestOrderPerKeyIsKept(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			b := shared(t)
			queue := b.queue(amqp.Table{"x-queue-type": kind})
			c := configFor(t, rabbit(t))
			c.Lanes, c.Window = 3, 50
			p := opened(t, c)
			const callers, batches, size = 8, 5, 100
			var all sync.WaitGroup
			for caller := range callers {
				all.Go(func() {
					n := 0
					for range batches {
						var messages []*Message
						for range size {
							n++
							key := fmt.Sprintf("%d-%d", caller, n%7)
							messages = append(messages, to(queue, key, fmt.Sprintf("%s/%d", key, n)))
						}
						if got := count(publish(t, p, messages...)); got["ok"] != size {
							t.Errorf("%v", got)
						}
					}
				})
			}
			all.Wait()
			got := b.read(queue, callers*batches*size)
			if len(got) != callers*batches*size {
				t.Fatalf("%d messages", len(got))
			}
			last := map[string]int{}
			for _, id := range ids(got) {
				var caller, key, n int
				fmt.Sscanf(id, "%d-%d/%d", &caller, &key, &n)
				name := fmt.Sprint(caller, key)
				if n <= last[name] {
					t.Fatalf("%s after %d", id, last[name])
				}
				last[name] = n
			}
		})
	}
}

// R1: an unroutable message is confirmed like any other; only its return tells.
func TestEachUnroutableMessageIsFound(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	c := configFor(t, rabbit(t))
	c.Lanes = 2
	p := opened(t, c)
	const rounds, size = 5, 1500
	for round := range rounds {
		var messages []*Message
		for i := range size {
			m := to(queue, fmt.Sprint(i), fmt.Sprint(round, "/", i))
			if i%3 == 0 {
				m.RoutingKey = "connectd.no.such.queue"
			}
			messages = append(messages, m)
		}
		for i, r := range publish(t, p, messages...) {
			want := "ok"
			if i%3 == 0 {
				want = "returned"
			}
			if outcome(r) != want {
				t.Fatalf("round %d, message %d: %s %v", round, i, outcome(r), r.Err)
			}
			if want == "returned" && (r.Err.Code != 312 || r.Err.Unknown) {
				t.Fatalf("%+v", r.Err)
			}
		}
	}
	if got := len(b.read(queue, rounds*size*2/3)); got != rounds*size*2/3 {
		t.Fatalf("%d messages", got)
	}
}

// Messages that differ in their body alone: one of them loses its way while they are on theirs.
func TestReturnsOfMessagesThatLookAlike(t *testing.T) {
	b := shared(t)
	queue, exchange := b.queue(nil), b.exchange("headers")
	must(t, b.ch.QueueBind(queue, "", exchange, false, amqp.Table{"x-match": "all", "way": "there"}))
	p := opened(t, configFor(t, rabbit(t)))
	var messages []*Message
	for i := range 200 {
		way := "there"
		if i%2 == 0 {
			way = "nowhere"
		}
		messages = append(messages, &Message{Lane: 1, Exchange: exchange, Mandatory: true,
			Publishing: amqp.Publishing{MessageId: "same", Headers: amqp.Table{"way": way, "n": i}, Body: []byte("same")}})
	}
	for i, r := range publish(t, p, messages...) {
		if want := []string{"returned", "ok"}[i%2]; outcome(r) != want {
			t.Fatalf("message %d: %s", i, outcome(r))
		}
	}
}

func TestBehindAFailedMessageItsKeyWaits(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	p := opened(t, configFor(t, rabbit(t)))
	lostWay := to("connectd.no.such.queue", "a", "a2")
	bad := to(queue, "c", "c1")
	bad.Publishing.Expiration = "soon"
	late := to(queue, "d", "d2")
	late.Publishing.MessageId = string(make([]byte, 300))
	got := outcomes(publish(t, p,
		to(queue, "a", "a1"), lostWay, to(queue, "a", "a3"), to(queue, "b", "b1"), to(queue, "a", "a4"), to(queue, "b", "b2"),
		bad, to(queue, "c", "c2"), to(queue, "d", "d1"), late, to(queue, "d", "d3")))
	want := []string{"ok", "returned", "not_attempted", "ok", "not_attempted", "ok", "invalid", "not_attempted", "ok", "invalid", "not_attempted"}
	if !slices.Equal(got, want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
	stored := ids(b.read(queue, 4))
	slices.Sort(stored)
	if !slices.Equal(stored, []string{"a1", "b1", "b2", "d1"}) {
		t.Fatal(stored)
	}
}

// R4: a full queue refuses.
func TestANackIsNoClosedChannel(t *testing.T) {
	b := shared(t)
	queue := b.queue(amqp.Table{"x-max-length": 2, "x-overflow": "reject-publish"})
	other := b.queue(nil)
	p := opened(t, configFor(t, rabbit(t)))
	var messages []*Message
	for i := range 6 {
		m := to(queue, "k", fmt.Sprint(i))
		m.Keyed = false
		messages = append(messages, m)
	}
	messages = append(messages, to(other, "k", "other"))
	got := count(publish(t, p, messages...))
	if got["ok"] != 3 || got["nack"] != 4 {
		t.Fatal(got)
	}
	// The channel is still good, and the queue takes messages again when it has room.
	b.read(queue, 2)
	if got := outcomes(publish(t, p, to(queue, "k", "later"))); got[0] != "ok" {
		t.Fatal(got)
	}
}

// R2: the broker closes the channel and says nothing of what it has stored.
func TestAMissingExchangeStopsNothingElse(t *testing.T) {
	b := shared(t)
	queue := b.queue(amqp.Table{"x-queue-type": "quorum"}) // slow to confirm
	c := configFor(t, rabbit(t))
	c.Lanes = 1
	c.MarkRepeat = func(m *amqp.Publishing) { m.Headers["again"] = true }
	p := opened(t, c)
	var messages []*Message
	for i := range 200 {
		m := to(queue, fmt.Sprint(i), fmt.Sprint(i))
		if i == 100 || i == 150 {
			m.Exchange = "connectd.no.such.exchange"
		}
		messages = append(messages, m)
	}
	messages = append(messages, to(queue, "100", "behind"))
	results := publish(t, p, messages...)
	got := count(results)
	if got["ok"] != 198 || got["missing_exchange"]+got["missing_exchange?"] != 2 || outcome(results[200]) != "not_attempted" {
		t.Fatal(got)
	}
	if results[100].Err.Code != 404 {
		t.Fatalf("%+v", results[100].Err)
	}
	seen, repeats := map[string]int{}, 0
	for _, d := range b.read(queue, 198) {
		seen[d.MessageId]++
		if seen[d.MessageId] > 1 {
			repeats++
		}
		if seen[d.MessageId] > 1 && d.Headers["again"] != true {
			t.Fatalf("message %s comes for a second time and does not say so", d.MessageId)
		}
	}
	if len(seen) != 198 {
		t.Fatalf("%d different messages", len(seen))
	}
	if repeats > 150 {
		t.Fatalf("%d repeats", repeats)
	}
	t.Logf("%d repeats", repeats)
}

func TestALotOfMissingExchanges(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	c := configFor(t, rabbit(t))
	c.Lanes = 1 // there are more than are looked for one by one
	p := opened(t, c)
	var messages []*Message
	for i := range 300 {
		m := to(queue, fmt.Sprint(i), fmt.Sprint(i))
		if i%3 == 0 {
			m.Exchange = fmt.Sprintf("connectd.no.such.exchange.%d", i%30)
		}
		messages = append(messages, m)
	}
	got := count(publish(t, p, messages...))
	if got["ok"] != 200 || got["missing_exchange"]+got["missing_exchange?"] != 100 {
		t.Fatal(got)
	}
}

// R3: a message that the broker will not take, and that nothing but the broker can tell.
func TestOneBadMessageIsFoundAndTheOthersGoOn(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	c := configFor(t, rabbit(t))
	c.Lanes = 1
	p := opened(t, c)
	p.user.Store(nil) // as with a certificate: the publisher does not know the user's name
	var messages []*Message
	for i := range 100 {
		m := to(queue, fmt.Sprint(i), fmt.Sprint(i))
		if i == 40 || i == 99 {
			m.Publishing.UserId = "somebody"
		}
		messages = append(messages, m)
	}
	for i, r := range publish(t, p, messages...) {
		want := "ok"
		if i == 40 || i == 99 {
			want = "precondition"
		}
		if got := outcome(r); got != want && got != want+"?" {
			t.Fatalf("message %d: %v", i, r.Err)
		}
	}
	seen := map[string]int{}
	for _, id := range ids(b.read(queue, 98)) {
		seen[id]++
	}
	if len(seen) != 98 {
		t.Fatalf("%d different messages", len(seen))
	}
}

// What was sent with the bad message is repeated once, and nothing else is.
func TestASearchRepeatsLittle(t *testing.T) {
	b := shared(t)
	queue := b.queue(amqp.Table{"x-queue-type": "quorum"})
	c := configFor(t, rabbit(t))
	c.Lanes, c.Window = 1, 10
	again := 0
	c.MarkRepeat = func(*amqp.Publishing) { again++ } // by the one lane
	p := opened(t, c)
	p.user.Store(nil)
	var messages []*Message
	for i := range 100 {
		messages = append(messages, to(queue, fmt.Sprint(i), fmt.Sprint(i)))
	}
	messages[9].Publishing.UserId = "somebody"
	if got := count(publish(t, p, messages...)); got["ok"] != 99 {
		t.Fatal(got)
	}
	got := len(b.read(queue, 99))
	if got > 99+9 {
		t.Fatalf("%d messages of 99", got)
	}
	if again > 10 {
		t.Fatalf("%d messages were sent again", again)
	}
	t.Logf("%d repeats", got-99)
}

// Many bad messages: the search is bounded, and nothing is said to be delivered that is not.
func TestTooManyBadMessages(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	c := configFor(t, rabbit(t))
	c.Lanes = 1
	p := opened(t, c)
	p.user.Store(nil)
	var messages []*Message
	for i := range 200 {
		m := to(queue, fmt.Sprint(i), fmt.Sprint(i))
		if i%2 == 0 {
			m.Publishing.UserId = "somebody"
		}
		messages = append(messages, m)
	}
	results := publish(t, p, messages...)
	got := count(results)
	if got["ok"] == 0 || got["channel?"] == 0 || got["precondition"]+got["precondition?"] < 32 {
		t.Fatal(got)
	}
	stored := map[string]bool{}
	for _, id := range ids(b.read(queue, got["ok"])) {
		stored[id] = true
	}
	for i, r := range results {
		if r.Err == nil && !stored[fmt.Sprint(i)] {
			t.Fatalf("message %d is not there", i)
		}
	}
	if got := outcomes(publish(t, p, to(queue, "k", "later"))); got[0] != "ok" {
		t.Fatal(got)
	}
}

func TestACallThatIsCancelledSaysWhatItKnows(t *testing.T) {
	b := shared(t)
	queue := b.queue(nil)
	p := opened(t, configFor(t, rabbit(t)))
	ctx, cancel := context.WithCancel(t.Context())
	var messages []*Message
	for i := range 3000 {
		messages = append(messages, to(queue, fmt.Sprint(i%1500), fmt.Sprint(i)))
	}
	done := make(chan []Result)
	go func() { done <- p.Publish(ctx, messages) }()
	eventually(t, "something is in the queue", func() bool { return b.length(queue) > 0 })
	cancel()
	results := <-done
	if got := outcomes(publish(t, p, to(queue, "k", "later"))); got[0] != "ok" {
		t.Fatal(got)
	}
	got := count(results)
	t.Log(got)
	shut(t, p) // the broker has read everything that was written
	stored := map[string]bool{}
	for _, id := range ids(b.read(queue, got["ok"])) {
		stored[id] = true
	}
	for i, r := range results {
		if id := fmt.Sprint(i); r.Err == nil && !stored[id] || r.Err != nil && !r.Err.Unknown && stored[id] {
			t.Fatalf("message %d: %s, stored %v", i, outcome(r), stored[id])
		}
	}
	if n := got["not_attempted"] + got["timeout?"] + got["ok"]; n != len(messages) {
		t.Fatal(got)
	}
}
