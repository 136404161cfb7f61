package webhook

import "time"

const (
	maxSpread  = 30 * time.Second       // over which records that have to come again are spread
	soonest    = 100 * time.Millisecond // that a record comes again
	unknownGap = 5 * time.Millisecond   // between two of them while nothing is known of the endpoint's rate
	maxAsked   = time.Minute            // between requests to an endpoint that asks to wait and does not say how long
)

// turns spreads the records that have to come again to an endpoint as wide as it can take them, so that they neither flood
// it when it is back nor come in vain.
type turns struct {
	last time.Time     // when the last of them comes
	gap  time.Duration // average time between two answers when the window is full
}

// answered notes how long an answer took with a window of that width.
func (t *turns) answered(took time.Duration, width float64) {
	gap := time.Duration(float64(took) / width)
	if t.gap > 0 {
		gap = (7*t.gap + gap) / 8
	}
	t.gap = gap
}

// next is when one more record may come again, at the earliest after wait.
func (t *turns) next(now time.Time, wait time.Duration) time.Duration {
	gap := t.gap
	if gap == 0 {
		gap = unknownGap
	}
	earliest := now.Add(max(wait, soonest))
	at := t.last.Add(gap)
	if at.Before(earliest) {
		at = earliest
	}
	if latest := earliest.Add(maxSpread); at.After(latest) {
		at = latest
	}
	t.last = at
	return at.Sub(now)
}

// asked is an endpoint's wish for a pause.
type asked struct {
	until time.Time
	times int // in a row
}

// wait notes that the endpoint asked for a pause of that length; of none, it is one second, doubled each time in a row.
// It returns what is left of the pause. Answers that ask during a pause were on their way when it began.
func (a *asked) wait(length time.Duration, now time.Time) time.Duration {
	if length <= 0 && !a.until.After(now) {
		length = min(time.Second<<min(a.times, 6), maxAsked)
		a.times++
	}
	if until := now.Add(length); until.After(a.until) {
		a.until = until
	}
	return a.until.Sub(now)
}
