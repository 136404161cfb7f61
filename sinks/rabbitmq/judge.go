package rabbitmq

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/sinks/rabbitmq/publisher"
)

const (
	// pauseFull is for queues that take no more, and a server that wants no messages, to get rid of some.
	pauseFull = time.Second
	// pauseRefused is for somebody to grant a right.
	pauseRefused = 30 * time.Second
	// refusalsLogged is how often the log tells of refusals that concern some records only.
	refusalsLogged = time.Minute
)

// judge turns what became of messages into outcomes. It may be used concurrently.
type judge struct {
	config *config
	// fixed says what all records have in common: when such a target is at fault, all of them wait for it. A target that a
	// row chose is at fault for the records of its key alone.
	fixed  fixed
	log    *slog.Logger
	logged atomic.Int64 // when a refusal was logged last, in Unix nanoseconds
	now    func() time.Time
}

func newJudge(c *composer, log *slog.Logger) *judge {
	return &judge{config: c.config, fixed: c.fixed, log: log, now: time.Now}
}

// outcomes are those of a call's messages.
func (j *judge) outcomes(messages []*publisher.Message, results []publisher.Result) []core.Outcome {
	full := fullTargets(messages, results)
	all := make([]core.Outcome, len(results))
	for i, r := range results {
		all[i] = j.outcome(messages[i], r.Err, full)
	}
	return all
}

// target is where a message goes.
type target struct{ exchange, routingKey string }

func targetOf(m *publisher.Message) target { return target{m.Exchange, m.RoutingKey} }

// fullTargets are those that refused several messages and took none after the first of these. A refusal (basic.nack) gives no
// reason. Mostly a queue is full, which is not its messages' fault; one that refuses a single message, or takes others
// after it, may have something against this very one.
func fullTargets(messages []*publisher.Message, results []publisher.Result) map[target]bool {
	refusals := map[target]int{}
	for i, r := range results {
		switch {
		case r.Err != nil && r.Err.Kind == publisher.KindNack:
			refusals[targetOf(messages[i])]++
		case r.Err == nil && len(refusals) > 0:
			delete(refusals, targetOf(messages[i]))
		}
	}
	full := map[target]bool{}
	for to, n := range refusals {
		if n > 1 {
			full[to] = true
		}
	}
	return full
}

// outcome judges one message.
func (j *judge) outcome(m *publisher.Message, e *publisher.Error, full map[target]bool) core.Outcome {
	if e == nil {
		return core.Outcome{Kind: core.Delivered}
	}
	o := core.Outcome{Kind: core.Retryable, Unknown: e.Unknown, Code: string(e.Kind), Message: j.plain(e)}
	if e.Connecting {
		return waiting(o, core.ScopeSink)
	}
	switch e.Kind {
	case publisher.KindInvalid, publisher.KindPrecondition:
		o.Kind = core.Permanent
	case publisher.KindNack:
		if full[targetOf(m)] {
			o.Kind, o.Scope, o.RetryAfter = core.Throttled, j.scope(core.ScopeSink), pauseFull
		}
	case publisher.KindReturned:
		o.Code, o.Scope = "unroutable", j.scope(core.ScopeDefault)
		if j.config.OnUnroutable == permanently {
			o.Kind, o.Scope = core.Permanent, core.ScopeDefault
		}
	case publisher.KindMissingExchange:
		switch {
		case j.fixed.exchange:
			o.Scope = core.ScopeSink
		case j.config.OnMissingExchange == permanently:
			o.Kind = core.Permanent
		default:
			o.Scope = core.ScopeKey
		}
	case publisher.KindRefused:
		if o.Scope = j.scope(core.ScopeSink); o.Scope == core.ScopeKey {
			o.Kind, o.RetryAfter = core.Throttled, pauseRefused
			j.tell(o.Message)
		}
	case publisher.KindTimeout:
		if !e.Unknown {
			return waiting(o, core.ScopeDefault)
		}
		o.Scope = j.scope(core.ScopeSink)
	case publisher.KindBlocked:
		if o.Scope = core.ScopeSink; !e.Unknown {
			o.Kind, o.RetryAfter = core.Throttled, pauseFull
		}
	case publisher.KindConnection:
		if o.Scope = core.ScopeSink; !e.Unknown {
			return waiting(o, core.ScopeSink)
		}
	case publisher.KindNotAttempted:
		o.Code = "behind"
		return waiting(o, core.ScopeDefault)
	case publisher.KindChannel:
		if !e.Unknown {
			return waiting(o, core.ScopeDefault)
		}
	}
	return o
}

// scope is of a failure that is about the message's target: what it is about when all records have the same.
func (j *judge) scope(ofAll core.Scope) core.Scope {
	if j.fixed.exchange && j.fixed.routingKey {
		return ofAll
	}
	return core.ScopeKey
}

// waiting is the outcome of a message that was not sent, through no fault of its own.
func waiting(o core.Outcome, scope core.Scope) core.Outcome {
	return core.Outcome{Kind: core.NotAttempted, Scope: scope, Code: o.Code, Message: o.Message}
}

// tell logs, now and then, what no connector's state shows.
func (j *judge) tell(message string) {
	now, last := j.now().UnixNano(), j.logged.Load()
	if now-last >= int64(refusalsLogged) && j.logged.CompareAndSwap(last, now) {
		j.log.Warn("RabbitMQ refuses records whose exchange or routing key the row chose; they wait", "error", message)
	}
}

// plain is an error's text without the settings' secrets, which no server should repeat.
func (j *judge) plain(err error) string { return core.CleanText(settings.Mask(err.Error(), j.config)) }
