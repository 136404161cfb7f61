package publisher

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// sweeping is a lane without a goroutine, on a channel of its own, and a call whose messages were published on it.
func sweeping(t *testing.T, b *broker, returns int, messages ...*Message) (*lane, *call) {
	t.Helper()
	ch, err := b.conn.Channel()
	must(t, err)
	must(t, ch.Confirm(false))
	s := &session{config: &Config{ConfirmTimeout: time.Minute}, conn: b.conn}
	t.Cleanup(s.running.Wait)
	l := newLane(s, len(messages))
	l.channel, l.returns = ch, ch.NotifyReturn(make(chan amqp.Return, returns))
	c := newCall(messages, make([]Result, len(messages)))
	for i := range c.items {
		m := messages[i]
		confirm, err := ch.PublishWithDeferredConfirm(m.Exchange, m.RoutingKey, m.Mandatory, false, m.Publishing)
		must(t, err)
		l.flight.add(&c.items[i], confirm, time.Now())
	}
	for _, e := range l.flight.all {
		<-e.confirm.Done()
	}
	return l, c
}

// A channel that is closed reports what is open as not confirmed, which is no nack: whoever looks first must not say so.
func TestTheEndOfAChannelIsNoNack(t *testing.T) {
	lost := to("", "k", "lost")
	lost.Exchange = "connectd.no-such-exchange"
	l, c := sweeping(t, shared(t), 10, lost)
	if !l.channel.IsClosed() {
		t.Fatal("the channel is open")
	}
	l.sweep(time.Now())
	if c.left != 1 {
		t.Errorf("it is said to be %s", outcomes(c.taken()))
	}
}

// The library throws returns away that there is no room for: then no confirmation means that a queue has the message.
func TestAFullListenerIsNotTrusted(t *testing.T) {
	b := shared(t)
	l, c := sweeping(t, b, 1, to("connectd.no-such-queue", "a", "a"), to("connectd.no-such-queue", "b", "b"))
	l.sweep(time.Now())
	if got := outcomes(c.taken()); got[0] != "returned" || got[1] != "channel?" {
		t.Error(got)
	}
}
