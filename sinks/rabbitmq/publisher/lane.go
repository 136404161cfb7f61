package publisher

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// lane is a channel and the goroutine that publishes on it and waits for its confirms. A channel that the broker closes is
// replaced; the lane ends with its session.
type lane struct {
	s      *session
	window int
	notice chan struct{} // something has changed for the goroutine

	mu        sync.Mutex
	incoming  []*item
	forgotten []*call
	shut      *Error // the session is over: nothing comes in any more

	// The goroutine's own.
	channel  *amqp.Channel // nil: to be opened when there is something to send
	closes   chan *amqp.Error
	returns  chan amqp.Return
	ready    []*item // to be sent, in order
	suspects []*item // to be sent before them, one at a time
	alone    bool    // what is in flight was a suspect
	culprits int     // found among the suspects
	idle     int     // channels in a row that were closed with nothing published on them
	flight   flight
}

func newLane(s *session, window int) *lane {
	return &lane{s: s, window: window, notice: make(chan struct{}, 1)}
}

// open opens the channel. The listeners are there before the first message is.
func (l *lane) open() error {
	ch, err := l.s.conn.Channel()
	if err != nil {
		return err
	}
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	// The library throws a return away when its listener is full for five seconds, so there is room for all.
	returns := ch.NotifyReturn(make(chan amqp.Return, l.window+1))
	if err := ch.Confirm(false); err != nil {
		return err
	}
	l.channel, l.closes, l.returns = ch, closes, returns
	return nil
}

// push hands items to the lane.
func (l *lane) push(items []*item) {
	l.mu.Lock()
	shut := l.shut
	if shut == nil {
		l.incoming = append(l.incoming, items...)
	}
	l.mu.Unlock()
	if shut == nil {
		l.nudge()
		return
	}
	for _, it := range items {
		it.fail(shut)
	}
}

// forget makes the goroutine give up a call's items.
func (l *lane) forget(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut == nil {
		l.forgotten = append(l.forgotten, c)
		l.nudge()
	}
}

func (l *lane) nudge() {
	select {
	case l.notice <- struct{}{}:
	default:
	}
}

func (l *lane) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !l.over() {
		l.collect()
		l.sweep(time.Now())
		if !l.send() {
			l.wait(timer)
		}
	}
	l.finish()
}

// over says that the session has ended. After the library has seen the end of the connection that is a matter of moments.
func (l *lane) over() bool {
	if l.s.conn.IsClosed() {
		<-l.s.done
		return true
	}
	select {
	case <-l.s.done:
		return true
	default:
		return false
	}
}

// collect takes what has come in.
func (l *lane) collect() {
	l.mu.Lock()
	incoming, forgotten := l.incoming, l.forgotten
	l.incoming, l.forgotten = nil, nil
	l.mu.Unlock()
	l.ready = append(l.ready, incoming...)
	for _, c := range forgotten {
		l.drop(c)
	}
}

// drop gives up a call's items. What is in flight stays there, without its message, until the broker has spoken.
func (l *lane) drop(c *call) {
	late := &Error{Kind: KindNotAttempted, Text: "the call's time ran out before the message was sent"}
	unconfirmed := &Error{Kind: KindTimeout, Unknown: true, Text: "the call's time ran out before RabbitMQ confirmed the message"}
	if blocked := l.s.whyBlocked(); blocked != nil {
		late, unconfirmed = blocked, blocked.unknown()
	}
	mine := func(it *item) bool {
		if it.call != c {
			return false
		}
		if it.unsure {
			it.settle(unconfirmed)
		} else {
			it.settle(late)
		}
		return true
	}
	l.ready = slices.DeleteFunc(l.ready, mine)
	l.suspects = slices.DeleteFunc(l.suspects, mine)
	for i := range l.flight.all {
		if e := &l.flight.all[i]; !e.settled && e.item != nil && e.item.call == c {
			e.item.settle(unconfirmed)
			e.item = nil
		}
	}
}

// send publishes what the window has room for, a part of it at a time: it reports true when there is more.
func (l *lane) send() bool {
	const most = 64
	for range most {
		if l.flight.open >= l.limit() || len(l.ready)+len(l.suspects) == 0 {
			return false
		}
		if blocked := l.s.whyBlocked(); blocked != nil {
			l.failAll(blocked)
			return false
		}
		if l.channel == nil {
			if err := l.open(); err != nil {
				l.s.end(&Error{Kind: KindConnection, Text: "a channel could not be opened: " + err.Error()})
				return false
			}
		}
		if !l.publish() {
			return false
		}
	}
	return true
}

// limit is how many messages may be in flight now.
func (l *lane) limit() int {
	if l.flight.open == 0 {
		l.alone = false
	}
	if len(l.suspects) > 0 || l.alone || l.s.careful.Load() > 0 {
		return 1
	}
	return l.window
}

// publish sends the next item. It reports false when the channel cannot be used.
func (l *lane) publish() bool {
	from := &l.ready
	if len(l.suspects) > 0 {
		from = &l.suspects
	}
	it := (*from)[0]
	content := it.message.Publishing
	if it.unsure {
		content = repeated(content, l.s.config.MarkRepeat)
	}
	m := it.message
	confirm, err := l.channel.PublishWithDeferredConfirmWithContext(context.Background(), m.Exchange, m.RoutingKey, m.Mandatory, false, content)
	switch {
	case err == nil:
		l.flight.add(it, confirm, time.Now())
		l.alone = len(l.suspects) > 0
		(*from)[0] = nil
		*from = (*from)[1:]
		return true
	case !errors.Is(err, amqp.ErrClosed):
		it.unsure = true
		l.s.end(&Error{Kind: KindConnection, Text: "the connection was lost: " + err.Error()})
	}
	// ErrClosed is said before the message is complete, and the broker acts on complete messages only.
	return false
}

// wait returns when there may be something to do.
func (l *lane) wait(timer *time.Timer) {
	confirmed, pause := l.flight.first(time.Now())
	timer.Reset(pause)
	closes := l.closes
	if l.channel == nil {
		closes = nil
	}
	select {
	case <-l.notice:
	case <-confirmed:
	case <-timer.C:
	case <-l.s.done:
	case cause := <-closes:
		l.exception(cause)
	}
}

// failAll settles what has not been sent.
func (l *lane) failAll(err *Error) {
	for _, it := range l.suspects {
		it.fail(err)
	}
	for _, it := range l.ready {
		it.fail(err)
	}
	l.suspects, l.ready = nil, nil
}

// finish settles everything when the session is over.
func (l *lane) finish() {
	l.mu.Lock()
	l.shut = l.s.cause
	incoming := l.incoming
	l.incoming, l.forgotten = nil, nil
	l.mu.Unlock()
	l.ready = append(l.ready, incoming...)
	l.sweepLast() // first: what follows a delivered message is ready now
	cause := l.s.cause
	if l.s.careful.Load() > 0 && suspicious(cause.Code) && l.flight.open == 1 {
		cause = cause.culprit()
	}
	l.flight.settleAll(cause.unknown())
	l.failAll(l.s.cause)
}
