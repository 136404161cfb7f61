package engine

import (
	"time"

	"github.com/connectd/connectd/core"
)

// lossEvery is the least time between two lines of the log about rows that were buried or held.
const lossEvery = 10 * time.Second

// losses are the rows that were buried or held since the log last said so: each needs a person, and none of them may
// fill the log.
type losses struct {
	rows   int
	first  string // the id of the first
	state  core.State
	reason string
	told   time.Duration // when the last line was written
	ever   bool
}

// noteLoss counts a row that left for good unless a person looks at it.
func (m *machine) noteLoss(id string, s core.Settlement) {
	if s.State != core.Dead && s.State != core.Held {
		return
	}
	if l := &m.losses; l.rows == 0 {
		l.first, l.state, l.reason = core.CleanText(id), s.State, s.Failure.Code+": "+s.Failure.Message
	}
	m.losses.rows++
}

// tellLosses writes a line about them, or makes next be called when it may.
func (m *machine) tellLosses(now time.Duration) {
	l := &m.losses
	if l.rows == 0 || l.ever && !m.at(l.told+lossEvery, now) {
		return
	}
	m.log.Warn("rows need a person: connectd rows list --state "+string(l.state), "connector", m.name,
		"rows", l.rows, "id", l.first, "state", string(l.state), "reason", l.reason)
	*l = losses{told: now, ever: true}
}
