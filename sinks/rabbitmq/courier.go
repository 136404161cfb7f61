package rabbitmq

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/rabbitmq/publisher"
)

// courier carries batches to the server.
type courier struct {
	composer  *composer
	judge     *judge
	publisher *publisher.Publisher
}

func newCourier(c *composer, log *slog.Logger) *courier {
	j := newJudge(c, log)
	return &courier{composer: c, judge: j, publisher: publisher.New(c.connection(j))}
}

// connection says how to reach the server.
func (c *composer) connection(j *judge) publisher.Config {
	s := c.config
	p := publisher.Config{
		Endpoints: s.endpoints(), VHost: s.VHost, ConnectionName: s.ConnectionName,
		Lanes: s.Lanes, Window: s.ConfirmWindow,
		ConfirmTimeout: time.Duration(s.Timeouts.Confirm), BlockedTimeout: time.Duration(s.Timeouts.Blocked),
		ConnectTimeout: time.Duration(s.Timeouts.Connect), Heartbeat: time.Duration(s.Heartbeat),
		Backoff:  publisher.Backoff{Min: time.Duration(s.ReconnectBackoff.Min), Max: time.Duration(s.ReconnectBackoff.Max)},
		Topology: c.establish, MarkRepeat: c.markRepeat, Log: j.log, Hide: j.hide,
	}
	if s.SASL != saslExternal {
		password := s.Password.Secret()
		p.Credentials = func() (string, string, error) {
			secret, err := password()
			j.password.Store(&secret)
			return s.Username, secret, err
		}
	}
	if s.secure() {
		p.TLS = s.TLS.Source()
	}
	return p
}

// deliver publishes a batch. Records that no message can be made of, and those behind them, are not among what is
// published; the publisher keeps the order of the others.
func (c *courier) deliver(ctx context.Context, batch []core.Record) []core.Outcome {
	outcomes := make([]core.Outcome, len(batch))
	messages := make([]*publisher.Message, 0, len(batch))
	which := make([]int, 0, len(batch)) // the messages' places in the batch
	stopped := map[string]bool{}        // keys
	for i := range batch {
		r := &batch[i]
		if r.Keyed && stopped[r.Key] {
			outcomes[i] = behind()
			continue
		}
		m, outcome := c.composer.compose(r)
		if outcome != nil {
			outcomes[i] = *outcome
			if r.Keyed {
				stopped[r.Key] = true
			}
			continue
		}
		messages, which = append(messages, m), append(which, i)
	}
	if len(messages) == 0 {
		return outcomes
	}
	verdicts := c.judge.outcomes(messages, c.publisher.Publish(ctx, messages))
	for n, i := range which {
		outcomes[i] = verdicts[n]
	}
	return outcomes
}

// behind is the outcome of a record whose key stopped before it.
func behind() core.Outcome {
	return core.Outcome{Kind: core.NotAttempted, Code: "behind", Message: "an earlier record of its key was not delivered"}
}

// open connects.
func (c *courier) open(ctx context.Context) error {
	if err := c.publisher.Open(ctx); err != nil {
		return errors.New(c.judge.plain(err))
	}
	return nil
}

// health asks for a server that takes messages.
func (c *courier) health(ctx context.Context) error {
	if err := c.publisher.Health(ctx); err != nil {
		return errors.New(c.judge.plain(err))
	}
	return nil
}

// close ends the connection.
func (c *courier) close(ctx context.Context) error { return c.publisher.Close(ctx) }
