package publisher

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/connectd/connectd/scripts/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// configFor is a Config for the server of an AMQP URL, with a second of patience where the defaults have many.
func configFor(t testing.TB, address string) Config {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	return Config{
		Endpoints:   []string{u.Host},
		VHost:       "/",
		Credentials: credentials(u),
		Backoff:     Backoff{Min: 20 * time.Millisecond, Max: 200 * time.Millisecond},
	}
}

func credentials(u *url.URL) func() (string, string, error) {
	return func() (string, string, error) {
		password, _ := u.User.Password()
		return u.User.Username(), password, nil
	}
}

// opened is a Publisher that is closed when the test ends.
func opened(t testing.TB, c Config) *Publisher {
	t.Helper()
	p := New(c)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must(t, p.Open(ctx))
	t.Cleanup(func() { shut(t, p) })
	return p
}

func shut(t testing.TB, p *Publisher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	must(t, p.Close(ctx))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// broker is the test's own view of a server, through the client library as it is.
type broker struct {
	t    testing.TB
	conn *amqp.Connection
	ch   *amqp.Channel
}

func brokerAt(t testing.TB, address string) *broker {
	t.Helper()
	conn, err := amqp.Dial(address)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	must(t, err)
	return &broker{t: t, conn: conn, ch: ch}
}

func rabbit(t testing.TB) string { t.Helper(); return services.RabbitMQ(t) }

func shared(t testing.TB) *broker { t.Helper(); return brokerAt(t, rabbit(t)) }

// queue declares a durable queue with a name of the test's own.
func (b *broker) queue(args amqp.Table) string {
	b.t.Helper()
	name := "connectd." + strings.ReplaceAll(b.t.Name(), "/", ".") + fmt.Sprint(time.Now().UnixNano())
	_, err := b.ch.QueueDeclare(name, true, false, false, false, args)
	must(b.t, err)
	b.t.Cleanup(func() {
		if !b.ch.IsClosed() {
			b.ch.QueueDelete(name, false, false, false)
		}
	})
	return name
}

// exchange declares one of a kind, with a name of the test's own.
func (b *broker) exchange(kind string) string {
	b.t.Helper()
	name := "connectd." + b.t.Name() + fmt.Sprint(time.Now().UnixNano())
	must(b.t, b.ch.ExchangeDeclare(name, kind, true, false, false, false, nil))
	b.t.Cleanup(func() {
		if !b.ch.IsClosed() {
			b.ch.ExchangeDelete(name, false, false)
		}
	})
	return name
}

// read takes everything out of a queue, in which there must be so many messages or more.
func (b *broker) read(queue string, atLeast int) []amqp.Delivery {
	b.t.Helper()
	ch, err := b.conn.Channel()
	must(b.t, err)
	deliveries, err := ch.Consume(queue, "", true, false, false, false, nil)
	must(b.t, err)
	const quiet, patience = 200 * time.Millisecond, 20 * time.Second
	var all []amqp.Delivery
	for {
		wait := patience
		if len(all) >= atLeast {
			wait = quiet
		}
		select {
		case d := <-deliveries:
			all = append(all, d)
		case <-time.After(wait):
			if len(all) < atLeast {
				b.t.Fatalf("%d messages in the queue, want %d or more", len(all), atLeast)
			}
			must(b.t, ch.Close())
			return all
		}
	}
}

// length is how many messages are ready in a queue.
func (b *broker) length(queue string) int {
	b.t.Helper()
	q, err := b.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	must(b.t, err)
	return q.Messages
}

func ids(deliveries []amqp.Delivery) []string {
	var list []string
	for _, d := range deliveries {
		list = append(list, d.MessageId)
	}
	return list
}

// to is a message to a queue by the default exchange.
func to(queue, key, id string) *Message {
	h := fnv.New64a()
	h.Write([]byte(key))
	return &Message{
		Lane: h.Sum64(), Key: key, Keyed: true, RoutingKey: queue, Mandatory: true,
		Publishing: amqp.Publishing{MessageId: id, DeliveryMode: amqp.Persistent, Body: []byte("body of " + id)},
	}
}

// publish publishes with half a minute to do it.
func publish(t testing.TB, p *Publisher, messages ...*Message) []Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return p.Publish(ctx, messages)
}

// outcome is a result in a word, with a question mark when it is unknown.
func outcome(r Result) string {
	switch {
	case r.Err == nil:
		return "ok"
	case r.Err.Unknown:
		return string(r.Err.Kind) + "?"
	}
	return string(r.Err.Kind)
}

func outcomes(results []Result) []string {
	var list []string
	for _, r := range results {
		list = append(list, outcome(r))
	}
	return list
}

func count(results []Result) map[string]int {
	n := map[string]int{}
	for _, r := range results {
		n[outcome(r)]++
	}
	return n
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
