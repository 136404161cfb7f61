package publisher

import (
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// sweep settles what the broker has spoken of, and gives the channel up when it has been silent for too long.
func (l *lane) sweep(now time.Time) {
	if l.channel == nil || l.flight.open == 0 {
		return
	}
	entries := l.flight.look(now)
	// A message's return comes before its confirm: all that belong to what is marked now are there.
	if !l.readReturns() {
		return
	}
	for i := range entries {
		if e := &entries[i]; e.done && !e.settled && !l.judge(e) {
			break
		}
	}
	l.flight.compact()
	l.expire(now)
}

// judge settles an entry that is done. It reports false when the entry is done only because the channel is closed.
func (l *lane) judge(e *entry) bool {
	var err *Error
	switch {
	case e.returned != nil:
		err = e.returned
	case e.confirm.Acked():
	case l.channel.IsClosed():
		return false
	default:
		err = &Error{Kind: KindNack, Text: "RabbitMQ refused the message (nack): a queue is full or could not store it"}
	}
	if next := l.flight.settle(e, err); next != nil {
		l.follow(next)
	}
	if l.s.careful.Load() > 0 {
		l.s.careful.Add(-1)
	}
	return true
}

// follow makes a message ready whose predecessor is delivered.
func (l *lane) follow(it *item) {
	if it.invalid != nil {
		it.settle(it.invalid)
		return
	}
	l.ready = append(l.ready, it)
}

// readReturns marks what was returned. It reports false when that cannot be trusted: then the channel has been given up.
func (l *lane) readReturns() bool {
	trusted := len(l.returns) < cap(l.returns) // a full listener may have missed some
	for len(l.returns) > 0 {
		r := <-l.returns
		e := l.flight.find(&r)
		if e == nil {
			trusted = false
			continue
		}
		e.returned = &Error{Kind: KindReturned, Code: int(r.ReplyCode), Text: fmt.Sprintf(
			"no queue takes messages to %s with routing key %.255q (%d %s)", named(r.Exchange), r.RoutingKey, r.ReplyCode, r.ReplyText)}
	}
	if !trusted {
		l.flight.settleAll(&Error{Kind: KindChannel, Unknown: true, Text: "RabbitMQ returned a message that cannot be told from others"})
		l.discard()
	}
	return trusted
}

func named(exchange string) string {
	if exchange == "" {
		return "the default exchange"
	}
	return fmt.Sprintf("exchange %q", exchange)
}

// expire gives the channel up when the oldest message has waited for too long, not counting the time in which the broker
// had said that it would be slow. A late confirm finds nobody.
func (l *lane) expire(now time.Time) {
	if l.flight.open == 0 || l.s.isBlocked.Load() {
		return
	}
	limit := l.s.config.ConfirmTimeout
	if now.Sub(l.flight.entries()[0].at) < limit || now.Sub(time.Unix(0, l.s.unblocked.Load())) < limit {
		return
	}
	l.flight.settleAll(&Error{Kind: KindTimeout, Unknown: true, Text: fmt.Sprintf("RabbitMQ did not confirm a message within %v", limit)})
	l.discard()
}

// discard closes the channel, beside the lane. The connection is given up if that cannot be done soon.
func (l *lane) discard() {
	const patience = 5 * time.Second
	ch := l.channel
	l.channel = nil
	l.s.running.Go(func() {
		timer := time.AfterFunc(patience, func() {
			l.s.end(&Error{Kind: KindConnection, Text: "the connection was given up, since RabbitMQ did not answer on it"})
		})
		defer timer.Stop()
		_ = ch.Close() // it is over either way
	})
}

// exception deals with a channel that the broker has closed.
func (l *lane) exception(cause *amqp.Error) {
	if l.s.conn.IsClosed() {
		return // the whole connection is lost
	}
	l.sweepLast()
	l.channel = nil
	err := exception(cause)
	open := l.flight.open
	if open == 0 {
		l.unasked(err)
		return
	}
	l.idle = 0
	defer func() { l.flight = flight{} }()
	switch {
	case err.Kind == KindChannel:
		l.flight.settleAll(err.unknown())
	case l.blame(err, cause.Reason):
		l.again(&l.ready)
	case open == 1:
		l.flight.settleAll(err)
		l.culprit(err)
	default:
		l.again(&l.suspects)
	}
}

// unasked is for a channel that was closed though nothing was published on it.
func (l *lane) unasked(err *Error) {
	const most = 3
	if l.idle++; l.idle > most {
		l.s.end(&Error{Kind: KindConnection, Code: err.Code, Text: "channels do not stay open: " + err.Text})
	}
}

// culprit counts the messages that were found by sending one after the other. Too many are not looked for: then the
// suspects that are left have to wait for another call.
func (l *lane) culprit(err *Error) {
	const most = 32
	if len(l.suspects) == 0 {
		l.culprits = 0
		return
	}
	if l.culprits++; l.culprits < most {
		return
	}
	other := &Error{Kind: KindChannel, Code: err.Code, Unknown: true, Text: "RabbitMQ closed the channel because of too many other messages: " + err.Text}
	for _, it := range l.suspects {
		it.settle(other)
	}
	l.suspects, l.culprits = nil, 0
}

// blame settles what goes to the exchange that the broker names as the reason, and reports whether there was something.
// If several messages in flight go there, an earlier one may have come through.
func (l *lane) blame(err *Error, text string) bool {
	vhost := l.s.config.VHost
	var found []*entry
	for i := range l.flight.all {
		if e := &l.flight.all[i]; !e.settled && blames(text, e.exchange, vhost) {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return false
	}
	named := *err
	named.OfExchange = true
	err = &named
	verdict := err
	if len(found) > 1 {
		verdict = err.unknown()
	}
	exchange := found[0].exchange
	for _, e := range found {
		l.flight.settle(e, verdict)
	}
	l.ready = failThose(l.ready, exchange, err)
	l.suspects = failThose(l.suspects, exchange, err)
	return true
}

// blames says whether the text means this exchange. These are the texts of RabbitMQ 3.10 and 4:
//
//	NOT_FOUND - no exchange 'x' in vhost '/'
//	ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused for user 'u'
//	ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'
//
// The default exchange is called amq.default. A text about a topic is about one routing key. A text that has been cut, or is none of these, means no exchange: then
// messages are tried one by one.
func blames(text, exchange, vhost string) bool {
	if exchange == "" {
		exchange = "amq.default"
	}
	before, after, ok := strings.Cut(text, "exchange '")
	if !ok || strings.Contains(before, "topic") {
		return false
	}
	rest, ok := strings.CutPrefix(after, exchange+"' in vhost '"+vhost+"'")
	return ok && (rest == "" || strings.HasPrefix(rest, " refused for user '"))
}

func failThose(items []*item, exchange string, err *Error) []*item {
	var others []*item
	for _, it := range items {
		if it.message.Exchange == exchange {
			it.fail(err)
		} else {
			others = append(others, it)
		}
	}
	return others
}

// again puts what is in flight before the items of a list.
func (l *lane) again(list *[]*item) {
	var items []*item
	for i := range l.flight.all {
		e := &l.flight.all[i]
		if !e.settled && e.item != nil {
			e.item.unsure = true
			items = append(items, e.item)
		}
	}
	*list = append(items, *list...)
}

// sweepLast settles what the broker had spoken of before the channel was closed. A nack cannot be told from the end then.
func (l *lane) sweepLast() {
	if l.channel == nil {
		return
	}
	l.flight.lookAll()
	if !l.readReturns() {
		return
	}
	for i := range l.flight.all {
		e := &l.flight.all[i]
		if e.settled || e.returned == nil && !e.confirm.Acked() {
			continue
		}
		if next := l.flight.settle(e, e.returned); next != nil {
			l.follow(next)
		}
	}
	l.flight.compact()
}
