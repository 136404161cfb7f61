package publisher

import (
	"context"
	"crypto/rand"

	amqp "github.com/rabbitmq/amqp091-go"
)

// answers asks the broker to confirm a message that no queue takes. It returns nil when the broker has dealt with it, which
// shows that it reads what is published.
func (s *session) answers(ctx context.Context) error {
	if blocked := s.whyBlocked(); blocked != nil {
		return blocked
	}
	select {
	case s.probing <- struct{}{}:
	case <-s.done:
		return s.cause
	case <-ctx.Done():
		return ctx.Err()
	}
	answer := make(chan error, 1)
	s.running.Go(func() { // until the broker answers or the connection ends
		defer func() { <-s.probing }()
		answer <- s.probe()
	})
	select {
	case err := <-answer:
		return err
	case <-s.blocks():
		return s.whyBlockedOr()
	case <-s.done:
		return s.cause
	case <-ctx.Done():
		return ctx.Err()
	}
}

// whyBlockedOr is for a moment after the broker has blocked the connection: it may be over already.
func (s *session) whyBlockedOr() error {
	if blocked := s.whyBlocked(); blocked != nil {
		return blocked
	}
	return &Error{Kind: KindBlocked, Text: "RabbitMQ had blocked the connection"}
}

// probe publishes to the default exchange, on a channel of its own, with a routing key that is no queue's name. A user who
// may not write there is refused, which is an answer too.
func (s *session) probe() error {
	ch, err := s.conn.Channel()
	if err != nil {
		return err
	}
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Confirm(false); err != nil {
		return err
	}
	confirm, err := ch.PublishWithDeferredConfirm("", "connectd.probe."+rand.Text(), true, false, amqp.Publishing{})
	if err != nil {
		return err
	}
	select {
	case <-confirm.Done():
	case <-s.done:
		return s.cause
	}
	if !ch.IsClosed() {
		return ch.Close()
	}
	if cause := <-closes; cause != nil && cause.Code != amqp.AccessRefused {
		return cause
	}
	return nil
}
