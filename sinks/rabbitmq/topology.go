package rabbitmq

import (
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// establish makes what the topology lists, or looks whether it is there, and looks for what every message needs: the one
// exchange, or the one queue behind the default exchange. It is for each new connection, since a server may have lost
// them while it was away, and for a channel of its own, which the server closes at the first no.
func (c *composer) establish(_ context.Context, ch *amqp.Channel) error {
	if c.config.Declare == declareNone {
		return nil
	}
	t, active := &c.config.Topology, c.config.Declare == declareActive
	for _, x := range t.Exchanges {
		if err := x.establish(ch, active); err != nil {
			return fmt.Errorf("exchange %q: %w", x.Name, err)
		}
	}
	for _, q := range t.Queues {
		if err := q.establish(ch, active); err != nil {
			return fmt.Errorf("queue %q: %w", q.Name, err)
		}
	}
	for _, b := range t.Bindings {
		if err := ch.QueueBind(b.Queue, b.RoutingKey, b.Exchange, false, table(b.Arguments)); err != nil {
			return fmt.Errorf("binding of queue %q to exchange %q: %w", b.Queue, b.Exchange, err)
		}
	}
	return c.needed(ch)
}

// needed looks for what every message needs.
func (c *composer) needed(ch *amqp.Channel) error {
	if !c.fixed.exchange {
		return nil
	}
	name, err := c.exchange.Expand(nil, nil)
	if err != nil {
		return err // not reached: it has no fields
	}
	if name != "" {
		if err := (exchange{Name: name}).establish(ch, false); err != nil {
			return fmt.Errorf("exchange %q: %w", name, err)
		}
		return nil
	}
	if !c.fixed.routingKey {
		return nil
	}
	if name, err = c.routingKey.Expand(nil, nil); err != nil {
		return err
	}
	if err := (queue{Name: name}).establish(ch, false); err != nil {
		return fmt.Errorf("queue %q: %w", name, err)
	}
	return nil
}

func (x exchange) establish(ch *amqp.Channel, active bool) error {
	if !active { // the server looks at the name alone
		return ch.ExchangeDeclarePassive(x.Name, amqp.ExchangeDirect, true, false, false, false, nil)
	}
	return ch.ExchangeDeclare(x.Name, x.Type, true, false, false, false, table(x.Arguments))
}

func (q queue) establish(ch *amqp.Channel, active bool) error {
	if !active {
		_, err := ch.QueueDeclarePassive(q.Name, true, false, false, false, nil)
		return err
	}
	arguments := table(q.Arguments)
	arguments[amqp.QueueTypeArg] = q.Type
	_, err := ch.QueueDeclare(q.Name, true, false, false, false, arguments)
	return err
}

func table(arguments map[string]argument) amqp.Table {
	t := make(amqp.Table, len(arguments)+1)
	for name, a := range arguments {
		t[name] = a.value
	}
	return t
}
