package host

import (
	"math/rand/v2"
	"time"
)

// breaker decides how long to wait before the next start. It is used by one goroutine.
//
// An exit is expected when the engine knew that the batch might kill the process: it counts nothing. An exit is
// fruitful when the process had answered a batch before: then it was worth starting, and it is started again soon, but
// not in a hot loop. All other exits and failed starts bring the breaker nearer to a pause.
type breaker struct {
	timing   timing
	failures int         // in a row, for the backoff
	exits    []time.Time // fruitless ones, within the window
	halfOpen bool        // the next start is a trial
}

// timing holds the supervision's times, so that tests can do without the waits.
type timing struct {
	backoffMin, backoffMax time.Duration // before full jitter
	settled                time.Duration // after this long of running all is forgotten
	breakerExits           int           // fruitless exits
	breakerWindow          time.Duration // within this time
	quarantine             time.Duration // until the trial
	open                   time.Duration // of one Open call
	close                  time.Duration // of the Close call
	end                    time.Duration // for the process to end when it was told to
	lookAgain              time.Duration // how often a broken program is looked at for changes
	probeEvery             time.Duration
	probeTimeout           time.Duration
	misses                 int           // probes without an answer until a process that does nothing and has no batch is wedged
	busyMisses             int           // the same for one that uses the processor or has a batch
	dump                   time.Duration // for the goroutine dump of a wedged process
}

func defaultTiming() timing {
	return timing{
		backoffMin: 50 * time.Millisecond, backoffMax: time.Minute, settled: time.Minute,
		breakerExits: 5, breakerWindow: 10 * time.Minute, quarantine: 5 * time.Minute, open: 30 * time.Second,
		close: 5 * time.Second, end: 2 * time.Second, lookAgain: time.Second,
		probeEvery: 5 * time.Second, probeTimeout: 2 * time.Second, misses: 3, busyMisses: 12,
		dump: 500 * time.Millisecond,
	}
}

// fruitfulFailures caps the backoff after fruitful exits.
const fruitfulFailures = 4

// exited takes note of an exit, or of a failed start, and answers how long to wait.
func (b *breaker) exited(now time.Time, ran time.Duration, fruitful, expected bool) (wait time.Duration, quarantine bool) {
	if expected {
		return jitter(b.timing.backoffMin), false
	}
	if ran >= b.timing.settled {
		b.failures, b.exits, b.halfOpen = 0, nil, false
	}
	if fruitful {
		b.exits, b.halfOpen = nil, false
		b.failures = min(b.failures, fruitfulFailures)
	} else {
		b.exits = append(b.exits, now)
		for len(b.exits) > 0 && now.Sub(b.exits[0]) > b.timing.breakerWindow {
			b.exits = b.exits[1:]
		}
	}
	if b.halfOpen || len(b.exits) >= b.timing.breakerExits {
		b.exits, b.halfOpen, b.failures = nil, true, 0
		return b.timing.quarantine, true
	}
	wait = backoff(b.timing, b.failures)
	b.failures++
	return wait, false
}

// jitter is a random time up to ceiling, so that sinks that fell together do not rise together.
func jitter(ceiling time.Duration) time.Duration { return rand.N(ceiling + 1) }

// backoff is the wait after a number of failures in a row before this one.
func backoff(t timing, failures int) time.Duration {
	ceiling := t.backoffMax
	if failures < 20 {
		ceiling = min(ceiling, t.backoffMin<<failures)
	}
	return jitter(ceiling)
}
