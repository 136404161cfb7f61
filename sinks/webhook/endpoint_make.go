package webhook

import (
	"errors"
	"log/slog"
	"time"

	"github.com/sony/gobreaker/v2"
	tokens "golang.org/x/time/rate"
)

// breakerWindow is the time over which a breaker counts, in timeouts of a request: an endpoint that hangs has only one
// request at a time in the end, and they must add up.
const breakerWindow = 20

// endpointMaker returns how endpoints are made. many says that the host depends on the row.
func endpointMaker(c *config, many bool, log *slog.Logger) func(name string) *endpoint {
	stall := time.Duration(c.Timeouts.Header) / 10
	var shared *places
	if many {
		shared = newPlaces(c.Concurrency, stall)
	}
	rules := c.Breaker
	sometimes := &tokens.Sometimes{First: 100, Interval: time.Second} // many endpoints fail together
	return func(name string) *endpoint {
		e := &endpoint{
			name: name, stall: stall, relook: time.Duration(c.Timeouts.Total) / 4,
			window: newWindow(c.perHost(many)), well: time.Now(),
		}
		if c.RateLimit != nil {
			e.limit = tokens.NewLimiter(tokens.Limit(c.RateLimit.Rate.perSecond()), c.RateLimit.Burst)
		}
		if !many {
			return e
		}
		e.places = shared
		e.openFor = time.Duration(rules.OpenFor)
		e.breaker = newBreaker(rules, breakerWindow*time.Duration(c.Timeouts.Total), func(to gobreaker.State) {
			e.turned(to)
			sometimes.Do(func() { tell(log, e, to) })
		})
		return e
	}
}

// perHost is how many requests one endpoint may have at once.
func (c *config) perHost(many bool) int {
	n := c.Concurrency
	if many {
		n = min(n, c.PerEndpoint)
	}
	if c.MaxConnsPerHost > 0 { // more would wait for a connection
		n = min(n, c.MaxConnsPerHost)
	}
	return n
}

// tell logs that an endpoint was left alone, or answers again.
func tell(log *slog.Logger, e *endpoint, state gobreaker.State) {
	switch state {
	case gobreaker.StateOpen:
		log.Warn("endpoint fails and is left alone", "endpoint", e.name, "for", e.openFor.String()) // a duration is a number in JSON
	case gobreaker.StateClosed:
		log.Info("endpoint answers again", "endpoint", e.name)
	}
}

// newBreaker returns a breaker that counts over the period and tells of each change.
func newBreaker(rules *breaker, period time.Duration, turned func(to gobreaker.State)) *gobreaker.TwoStepCircuitBreaker[struct{}] {
	least, ratio := uint32(rules.MinRequests), rules.FailureRatio
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  uint32(rules.HalfOpen),
		Timeout:      time.Duration(rules.OpenFor),
		Interval:     period,
		BucketPeriod: period / 6,
		// In a row, so that an endpoint that has done well for minutes is left alone soon after it died.
		ReadyToTrip: func(n gobreaker.Counts) bool {
			judged := n.TotalSuccesses + n.TotalFailures
			return n.ConsecutiveFailures >= least || judged >= least && float64(n.TotalFailures) >= ratio*float64(judged)
		},
		IsExcluded:    func(err error) bool { return errors.Is(err, errUnseen) },
		OnStateChange: func(_ string, _, to gobreaker.State) { turned(to) },
	})
}
