package webhook

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/webhook/auth"
	"github.com/connectd/connectd/sinks/webhook/egress"
)

// courier carries messages: it is what an open sink consists of. It may be used concurrently.
type courier struct {
	composer  *composer
	judge     *judge
	client    *egress.Client
	auth      auth.Authorizer // nil: none
	endpoints *endpoints
	many      bool          // the host depends on the row; else there is one endpoint
	total     time.Duration // for one request
	lanes     int           // of one call that run beside each other

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
	v, sent = c.send(ctx, m)
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

// maxRedirects is how many redirects within an endpoint are followed, where the settings allow any.
const maxRedirects = 3

// send makes the request, and again if that is of use at once: with a fresh token, or where a redirect leads.
func (c *courier) send(ctx context.Context, m *message) (v verdict, sent bool) {
	to := m.url
	renewed := false
	for redirects := 0; ; {
		var r egress.Request
		r, v, sent = c.request(ctx, m, to)
		switch {
		case v.reauthorize && !renewed && c.auth != nil && c.auth.Refused(&r):
			renewed = true
		case v.redirect != nil && redirects < maxRedirects:
			redirects++
			to = v.redirect
		default:
			return v, sent
		}
	}
}

// request makes one attempt, with a timestamp and signatures of its own, and returns what was sent with its verdict.
func (c *courier) request(ctx context.Context, m *message, to *url.URL) (r egress.Request, v verdict, sent bool) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, c.total)
	defer cancel()
	c.composer.sign(m, began)
	r = egress.Request{Method: m.method, URL: to, Header: m.header, Body: m.body}
	if c.auth != nil {
		if err := c.auth.Authorize(limited, &r); err != nil {
			return r, unsent(ctx, began, verdict{outcome: unauthorized(err)}), false
		}
	}
	answer, err := c.client.Do(limited, r)
	judge := c.judge.to(&r)
	if err != nil {
		var failed *egress.Error
		sent = !errors.As(err, &failed) || failed.Sent
		if v = judge.failure(err); !sent {
			v = unsent(ctx, began, v)
		}
		return r, v, sent
	}
	return r, judge.answer(m, answer.Status, answer.Header, answer.Body), true
}

// fairChance is the time in which an endpoint should be connected to, when its call has no more.
const fairChance = time.Second

// unsent is the verdict on a request of which nothing was sent: what the failure says, unless it is only that the call was
// ended or that its own time was nearly over when the request began.
func unsent(ctx context.Context, began time.Time, v verdict) verdict {
	switch err := ctx.Err(); {
	case err == nil, errors.Is(err, context.DeadlineExceeded) && time.Since(began) >= fairChance:
		return v
	default:
		return verdict{outcome: *notBegun()}
	}
}

// unauthorized is the outcome when there is no token: that is the same for all endpoints.
func unauthorized(err error) core.Outcome {
	return core.Outcome{Kind: core.Retryable, Scope: core.ScopeSink, Code: "authorization", Message: core.CleanText(err.Error())}
}
