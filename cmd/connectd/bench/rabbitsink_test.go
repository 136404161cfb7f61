//go:build linux

package bench

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/connectd/connectd/core"
)

// The sink's defaults.
const (
	rabbitLanes  = 4
	rabbitWindow = 1000 // of each
)

// benchmarkRabbitSink compares on the server of the environment.
func benchmarkRabbitSink(b *testing.B, p programs, address string, r *report) {
	conn, err := amqp.Dial(address)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		b.Fatal(err)
	}
	compareSink(b, p, r, "RabbitMQ", atLeast(0.7), func() place { return newQueue(b, address, ch) })
}

// queue is a quorum queue.
type queue struct {
	address string
	ch      *amqp.Channel
	name    string
}

func newQueue(b *testing.B, address string, ch *amqp.Channel) *queue {
	b.Helper()
	q := &queue{address: address, ch: ch, name: fmt.Sprintf("connectd-bench-%x", rand.Uint64())}
	if _, err := ch.QueueDeclare(q.name, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		b.Fatal(err)
	}
	return q
}

func (q *queue) sink() (string, map[string]any) {
	u, err := url.Parse(q.address)
	if err != nil {
		return "rabbitmq", nil // it has been connected to
	}
	password, _ := u.User.Password()
	return "rabbitmq", map[string]any{
		"urls": []string{"amqp://" + u.Host}, "username": u.User.Username(), "password": password,
		"routing_key": q.name, "lanes": rabbitLanes, "confirm_window": rabbitWindow,
	}
}

func (q *queue) remove(b *testing.B) {
	if _, err := q.ch.QueueDelete(q.name, false, false, false); err != nil {
		b.Fatal(err)
	}
}

// bare publishes on as many channels of one connection as the sink has, each with its window full all the time.
func (q *queue) bare(b *testing.B, rows *supply) sent {
	conn, err := amqp.Dial(q.address)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	began, before := time.Now(), cpuTime(b, os.Getpid())
	var wg sync.WaitGroup
	for lane := range rabbitLanes {
		wg.Go(func() {
			if err := q.publish(conn, func() []core.Record {
				if time.Since(began) >= turn {
					return nil
				}
				return rows.next(lane, rabbitLanes, began)
			}); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	did := sent{rows.rows(), time.Since(began), cpuTime(b, os.Getpid()) - before}
	if b.Failed() {
		b.FailNow()
	}
	return did
}

// publish publishes batches on a channel until there are none, mandatory and confirmed.
func (q *queue) publish(conn *amqp.Connection, next func() []core.Record) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	returns := ch.NotifyReturn(make(chan amqp.Return, rabbitWindow+1))
	var window [rabbitWindow]*amqp.DeferredConfirmation
	n := 0
	for batch := next(); batch != nil; batch = next() {
		for i := range batch {
			place := &window[n%rabbitWindow]
			if n++; *place != nil && !(*place).Wait() {
				return fmt.Errorf("a row was refused")
			}
			if *place, err = ch.PublishWithDeferredConfirm("", q.name, true, false, rabbitMessage(&batch[i])); err != nil {
				return err
			}
		}
	}
	for _, confirm := range window {
		if confirm != nil && !confirm.Wait() {
			return fmt.Errorf("a row was refused")
		}
	}
	if len(returns) > 0 {
		return fmt.Errorf("rows were returned")
	}
	return ch.Close()
}

// rabbitMessage is the message that the sink makes of a row.
func rabbitMessage(r *core.Record) amqp.Publishing {
	return amqp.Publishing{
		MessageId: r.ID, Type: r.Type, ContentType: "application/json", DeliveryMode: amqp.Persistent,
		Timestamp: r.CreatedAt, AppId: "connectd/bench", Body: r.Payload,
		Headers: amqp.Table{
			"connectd-created-at": r.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000Z07:00"),
			"connectd-delivery":   int64(r.Deliveries),
			"connectd-epoch":      r.Epoch,
			"connectd-key":        r.Key,
			"connectd-route":      r.Route,
		},
	}
}

// read empties the queue. A message behind all others says where it ends.
func (q *queue) read(b *testing.B, rows int) (got tally) {
	const end = "end"
	if err := q.ch.PublishWithContext(b.Context(), "", q.name, true, false, amqp.Publishing{MessageId: end}); err != nil {
		b.Fatal(err)
	}
	deliveries, err := q.ch.ConsumeWithContext(b.Context(), q.name, q.name, true, true, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	timeout := time.After(long(rows))
	for {
		select {
		case d, open := <-deliveries:
			switch {
			case !open:
				b.Fatalf("the consumer ended after %d of %d rows", got.rows, rows)
			case d.MessageId == end:
				if err := q.ch.Cancel(q.name, false); err != nil {
					b.Fatal(err)
				}
				return got
			}
			got.add(d.MessageId, d.Body)
		case <-timeout:
			b.Fatalf("%d of %d rows were read", got.rows, rows)
		}
	}
}
