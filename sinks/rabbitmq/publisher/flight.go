package publisher

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// flight are a lane's published messages, in the order in which they were published, until the broker has spoken of them.
// Each has a channel of its own for that. The lane waits for the first; since confirms may come in another order, all are
// looked at after a pause, which grows while nothing is found.
type flight struct {
	all    []entry
	head   int // those before are settled
	open   int // entries that are not settled
	looked time.Time
	pause  time.Duration
}

const (
	shortestPause = 2 * time.Millisecond
	longestPause  = 64 * time.Millisecond
)

// entry is a message in flight.
type entry struct {
	item     *item // nil when it is settled, or its call has given it up
	confirm  *amqp.DeferredConfirmation
	at       time.Time
	done     bool // the broker has confirmed or refused it, or the channel is closed
	settled  bool
	returned *Error
	// By these a message that its call has given up is known when it is returned.
	exchange, routingKey, id string
}

func (f *flight) add(it *item, confirm *amqp.DeferredConfirmation, now time.Time) {
	m := it.message
	f.all = append(f.all, entry{
		item: it, confirm: confirm, at: now, exchange: m.Exchange, routingKey: m.RoutingKey, id: m.Publishing.MessageId,
	})
	f.open++
}

// first returns the confirmation of the first message, and for how long to wait for it.
func (f *flight) first(now time.Time) (<-chan struct{}, time.Duration) {
	if f.open == 0 {
		return nil, time.Hour
	}
	return f.all[f.head].confirm.Done(), max(f.pause-now.Sub(f.looked), 0)
}

// look marks the entries that are done, and returns those that may have been marked.
func (f *flight) look(now time.Time) []entry {
	entries := f.entries()
	front := 0
	for front < len(entries) && entries[front].look() {
		front++
	}
	if front == len(entries) {
		f.looked, f.pause = now, shortestPause
		return entries
	}
	if now.Sub(f.looked) < f.pause {
		return entries[:front]
	}
	f.looked, f.pause = now, min(max(2*f.pause, shortestPause), longestPause)
	for i := front; i < len(entries); i++ {
		if e := &entries[i]; !e.done && e.look() {
			f.pause = shortestPause
		}
	}
	return entries
}

// lookAll marks the entries that are done.
func (f *flight) lookAll() {
	for i := range f.all {
		f.all[i].look()
	}
}

func (e *entry) look() bool {
	if !e.done {
		select {
		case <-e.confirm.Done():
			e.done = true
		default:
		}
	}
	return e.done
}

// settle gives the entry its result and returns the message that may follow it.
func (f *flight) settle(e *entry, err *Error) (next *item) {
	it := e.item
	e.settled, e.item = true, nil
	f.open--
	switch {
	case it == nil:
		return nil
	case err != nil:
		it.fail(err)
		return nil
	}
	return it.settle(nil)
}

// settleAll settles what is open. What was returned has its own error.
func (f *flight) settleAll(err *Error) {
	for i := range f.all {
		switch e := &f.all[i]; {
		case e.settled:
		case e.returned != nil:
			f.settle(e, e.returned)
		default:
			f.settle(e, err)
		}
	}
	f.compact()
}

// compact removes what is settled, when it is most of what there is or is not at the front.
func (f *flight) compact() {
	for f.head < len(f.all) && f.all[f.head].settled {
		f.head++
	}
	if waste := len(f.all) - f.open; waste > len(f.all)/2 || waste > f.head {
		f.all = slices.DeleteFunc(f.all, func(e entry) bool { return e.settled })
		f.head = 0
	}
}

// entries are those that may be open, the first of which is.
func (f *flight) entries() []entry { return f.all[f.head:] }

// find returns the entry of a message that was returned, or nil. The broker says what it returns and not which one it was.
// Its returns come in the order in which the messages were published. So of several messages that look alike the first is
// meant; if they differ in nothing, it does not matter.
func (f *flight) find(r *amqp.Return) *entry {
	var first *entry
	for i := range f.all {
		e := &f.all[i]
		if e.settled || e.returned != nil || e.exchange != r.Exchange || e.routingKey != r.RoutingKey || e.id != r.MessageId {
			continue
		}
		if e.item != nil && (!e.item.message.Mandatory || !bytes.Equal(e.item.message.Publishing.Body, r.Body)) {
			continue
		}
		if e.item != nil && alike(&e.item.message.Publishing, r) {
			return e
		}
		if first == nil {
			first = e
		}
	}
	return first
}

// alike compares what else there is to compare. The broker may have added headers, and takes BCC away.
func alike(m *amqp.Publishing, r *amqp.Return) bool {
	if m.Type != r.Type || m.CorrelationId != r.CorrelationId || m.ContentType != r.ContentType || m.ReplyTo != r.ReplyTo ||
		m.Expiration != r.Expiration || m.Priority != r.Priority {
		return false
	}
	for name, value := range m.Headers {
		if small, ok := value.(int); ok {
			value = int32(small) // as the library sends it
		}
		if at, ok := value.(time.Time); ok {
			value = time.Unix(at.Unix(), 0)
		}
		if got, ok := r.Headers[name]; name != "BCC" && (!ok || !reflect.DeepEqual(got, value)) {
			return false
		}
	}
	return true
}

// repeated is a message that is published again.
func repeated(m amqp.Publishing, mark func(*amqp.Publishing)) amqp.Publishing {
	if mark != nil {
		m.Headers = maps.Clone(m.Headers)
		if m.Headers == nil {
			m.Headers = amqp.Table{}
		}
		mark(&m)
	}
	return m
}
