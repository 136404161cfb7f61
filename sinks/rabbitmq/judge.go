package rabbitmq

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/sinks/rabbitmq/publisher"
)

const (
	// pauseFull is for queues that take no more, and a server that wants no messages, to get rid of some.
	pauseFull = time.Second
	// refusalsLogged is how often the log tells of refusals that concern some records only.
	refusalsLogged = time.Minute
)

// judge turns what became of messages into outcomes. It may be used concurrently.
type judge struct {
	config *config
	// fixed says what all records have in common: when such a target is at fault, all of them wait for it. A target that a
	// row chose is at fault for the records of its key alone.
	fixed fixed
	log   *slog.Logger
	// password is the one that the server was given last; nil before.
	password atomic.Pointer[string]
	logged   atomic.Int64 // when a refusal was logged last, in Unix nanoseconds
	now      func() time.Time
}

func newJudge(c *composer, log *slog.Logger) *judge {
	return &judge{config: c.config, fixed: c.fixed, log: log, now: time.Now}
}

// outcomes are those of a call's messages.
func (j *judge) outcomes(messages []*publisher.Message, results []publisher.Result) []core.Outcome {
	full := fullTargets(messages, results)
	all := make([]core.Outcome, len(results))
	for i, result := range results {
		all[i] = core.Outcome{Kind: core.Delivered}
		if result.Err != nil {
			all[i] = j.outcome(result.Err, full[targetOf(messages[i])])
		}
	}
	return all
}

// target is where a message goes.
type target struct{ exchange, routingKey string }

func targetOf(m *publisher.Message) target { return target{m.Exchange, m.RoutingKey} }

// fullTargets are those that refused several messages, and no fewer than they took. A refusal (basic.nack) gives no reason.
// Mostly a queue is full, which is not its messages' fault; where most are taken, those that are not may be to blame.
func fullTargets(messages []*publisher.Message, results []publisher.Result) map[target]bool {
	refused := map[target]int{}
	for i, r := range results {
		if r.Err != nil && r.Err.Kind == publisher.KindNack {
			refused[targetOf(messages[i])]++
		}
	}
	full := map[target]bool{}
	if len(refused) == 0 {
		return full
	}
	taken := map[target]int{}
	for i, r := range results {
		if r.Err == nil {
			taken[targetOf(messages[i])]++
		}
	}
	for to, n := range refused {
		full[to] = n > 1 && n >= taken[to]
	}
	return full
}

// outcome judges a message that was not delivered. full says that its target takes nothing.
func (j *judge) outcome(e *publisher.Error, full bool) core.Outcome {
	o := core.Outcome{Kind: core.Retryable, Unknown: e.Unknown, Code: string(e.Kind), Message: j.plain(e)}
	if e.Connecting {
		return waiting(o, core.ScopeSink)
	}
	switch e.Kind {
	case publisher.KindInvalid, publisher.KindPrecondition:
		return buried(o)
	case publisher.KindReturned:
		o.Code, o.Scope = "unroutable", j.scope(core.ScopeDefault)
		if j.config.OnUnroutable == permanently {
			return buried(o)
		}
	case publisher.KindMissingExchange:
		if o.Scope = core.ScopeKey; j.fixed.exchange {
			o.Scope = core.ScopeSink
		} else if j.config.OnMissingExchange == permanently {
			return buried(o)
		}
	case publisher.KindRefused:
		return j.refused(o, e.OfExchange)
	case publisher.KindNack:
		if full {
			if o.Scope = j.scope(core.ScopeSink); o.Scope == core.ScopeKey {
				j.tell(o.Message)
			}
			return later(o, o.Scope, pauseFull)
		}
	case publisher.KindBlocked:
		if o.Scope = core.ScopeSink; !e.Unknown {
			return later(o, core.ScopeSink, pauseFull)
		}
	case publisher.KindConnection:
		if o.Scope = core.ScopeSink; !e.Unknown {
			return waiting(o, core.ScopeSink)
		}
	case publisher.KindTimeout:
		if o.Scope = j.scope(core.ScopeSink); !e.Unknown {
			return waiting(o, core.ScopeDefault)
		}
	case publisher.KindChannel:
		if !e.Unknown {
			return waiting(o, core.ScopeDefault)
		}
	case publisher.KindNotAttempted:
		o.Code = "behind"
		return waiting(o, core.ScopeDefault)
	}
	return o
}

// refused is for a right that lacks. All records wait for it, at no charge; but where the row chose what is refused, it is
// an attempt like any other, or a row that names what nobody may ever write to would wait for ever and nobody would see it.
func (j *judge) refused(o core.Outcome, ofExchange bool) core.Outcome {
	if o.Scope = j.scope(core.ScopeSink); ofExchange && j.fixed.exchange {
		o.Scope = core.ScopeSink
	}
	if o.Scope == core.ScopeKey {
		j.tell(o.Message)
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

// buried is the outcome of a message that will never be taken.
func buried(o core.Outcome) core.Outcome {
	if o.Unknown {
		o.Message += "; it may have been taken just before"
	}
	return core.Outcome{Kind: core.Permanent, Code: o.Code, Message: o.Message}
}

// later is the outcome of a message that is to be sent again, and is charged nothing.
func later(o core.Outcome, scope core.Scope, pause time.Duration) core.Outcome {
	return core.Outcome{Kind: core.Throttled, Scope: scope, RetryAfter: pause, Code: o.Code, Message: o.Message}
}

// waiting is the outcome of a message that was not sent, through no fault of its own.
func waiting(o core.Outcome, scope core.Scope) core.Outcome {
	return core.Outcome{Kind: core.NotAttempted, Scope: scope, Code: o.Code, Message: o.Message}
}

// tell logs, now and then, what no connector's state shows.
func (j *judge) tell(message string) {
	now, last := j.now().UnixNano(), j.logged.Load()
	if now-last >= int64(refusalsLogged) && j.logged.CompareAndSwap(last, now) {
		j.log.Warn("RabbitMQ refuses records whose exchange or routing key the row chose", "error", message)
	}
}

// plain is an error's text without secrets.
func (j *judge) plain(err error) string { return core.CleanText(j.hide(err.Error())) }

// hide takes the secrets of the settings and their files out of a text: no server should repeat them.
func (j *judge) hide(text string) string {
	if password := j.password.Load(); password != nil && *password != "" {
		text = strings.ReplaceAll(text, *password, "***")
	}
	return settings.Mask(text, j.config)
}
