package publisher

import (
	"context"
	"math/rand/v2"
	"time"
)

// supervise keeps a connection until ctx ends. It owns s.
func (p *Publisher) supervise(ctx context.Context, d *dialer, s *session) {
	defer close(p.stopped)
	rounds := 0
	for {
		connected := time.Now()
		p.log.Info("connected to RabbitMQ", "endpoint", s.endpoint)
		select {
		case <-s.done:
		case <-ctx.Done():
			s.end(errClosed)
		}
		p.use(nil, s.cause)
		s.wait()
		if ctx.Err() != nil {
			return
		}
		p.log.Warn("the connection to RabbitMQ is gone", "endpoint", s.endpoint, "reason", p.config.Hide(s.cause.Text))
		d.careful = suspicious(s.cause.Code)
		const settled = time.Minute
		if time.Since(connected) >= settled {
			rounds = 0
		}
		if s, rounds = p.reconnect(ctx, d, rounds); s == nil {
			return
		}
		p.use(s, nil)
	}
}

// reconnect tries until there is a session, or ctx ends: then it returns nil.
func (p *Publisher) reconnect(ctx context.Context, d *dialer, rounds int) (*session, int) {
	said := ""
	for {
		timer := time.NewTimer(p.config.Backoff.wait(rounds, rand.Float64()))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, rounds
		}
		rounds++
		s, err := d.round(ctx)
		if err == nil {
			return s, rounds
		}
		p.use(nil, err)
		if err.Text != said && ctx.Err() == nil {
			said = err.Text
			p.log.Warn("RabbitMQ cannot be reached", "reason", p.config.Hide(said))
		}
	}
}

// use makes s the session that messages go to; without one they fail with the error.
func (p *Publisher) use(s *session, err *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.failed = s, err
}
