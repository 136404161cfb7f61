package webhook

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/webhook/egress"
)

// courier carries messages: it is what an open sink consists of. It may be used concurrently.
type courier struct {
	composer  *composer
	judge     *judge
	client    *egress.Client
	auth      authorizer // nil: none
	endpoints *endpoints
	many      bool          // the host depends on the row; else there is one endpoint
	total     time.Duration // for one request

	perRequest int  // rows at most
	perRow     bool // an answer may have an outcome for each row
}

// attempt sends a message, if its endpoint lets it out before gate ends. It returns what came of it, and whether any of
// it can have been sent. hurried says that the call of Deliver waits for nothing else.
func (c *courier) attempt(ctx, gate context.Context, m *message, hurried bool) (v verdict, sent bool) {
	e := c.endpoints.borrow(m.endpoint)
	defer c.endpoints.giveBack(e)
	done, refused := e.admit(gate, hurried)
	if refused != nil {
		return verdict{outcome: *refused}, false
	}
	v, sent = c.request(ctx, m)
	if v.reauthorize && c.auth != nil && c.auth.Refused() {
		v, sent = c.request(ctx, m)
	}
	if v.outcome.Kind == core.NotAttempted || errors.Is(ctx.Err(), context.Canceled) && v.outcome.Kind != core.Delivered {
		done(nil)
	} else {
		done(&v)
	}
	return c.scoped(v), sent
}

// scoped says how far a failure of the endpoint reaches: to the sink if it is the only one, else to the record's key.
func (c *courier) scoped(v verdict) verdict {
	switch {
	case !v.endpoint || v.outcome.Scope != core.ScopeDefault:
	case c.many:
		v.outcome.Scope = core.ScopeKey
	default:
		v.outcome.Scope = core.ScopeSink
	}
	return v
}

// request makes one attempt, with a timestamp and signatures of its own.
func (c *courier) request(ctx context.Context, m *message) (v verdict, sent bool) {
	limited, cancel := context.WithTimeout(ctx, c.total)
	defer cancel()
	r := egress.Request{Method: m.method, URL: m.url, Header: maps.Clone(m.header), Body: m.body}
	maps.Copy(r.Header, c.composer.sign(m, time.Now()))
	if c.auth != nil {
		if err := c.auth.Authorize(limited, &r); err != nil {
			return c.unsent(ctx, verdict{outcome: unauthorized(err)}), false
		}
	}
	answer, err := c.client.Do(limited, r)
	if err != nil {
		var failed *egress.Error
		sent = !errors.As(err, &failed) || failed.Sent
		if v = c.judge.failure(err); !sent {
			v = c.unsent(ctx, v)
		}
		return v, sent
	}
	return c.judge.answer(m, answer.Status, answer.Header, answer.Body), true
}

// unsent is the verdict on a request of which nothing was sent: what the failure says, unless it is only that the call's
// own time is over.
func (c *courier) unsent(ctx context.Context, v verdict) verdict {
	if ctx.Err() != nil {
		return verdict{outcome: *notBegun()}
	}
	return v
}

// unauthorized is the outcome when there is no token: that is the same for all endpoints.
func unauthorized(err error) core.Outcome {
	return core.Outcome{Kind: core.Retryable, Scope: core.ScopeSink, Code: "authorization", Message: err.Error()}
}

type authorizer interface {
	Authorize(ctx context.Context, r *egress.Request) error
	Refused() bool
}
