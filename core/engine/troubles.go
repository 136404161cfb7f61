package engine

import (
	"slices"
	"time"
)

// trouble is one of the source's calls that fails. Each has its own count: while a table cannot be read, heartbeats may
// go on, and their success says nothing about the table.
type trouble struct {
	call     string
	part     int // 0 for calls about no partition
	failures int // in a row
	err      string
}

// sourceSaid keeps count of a call's failures for its backoff, and tells each change of the source's state once.
func (m *machine) sourceSaid(call string, part int, err error) {
	i := slices.IndexFunc(m.troubles, func(t trouble) bool { return t.call == call && t.part == part })
	switch {
	case err == nil && i < 0:
	case err == nil:
		failures := m.troubles[i].failures
		m.troubles = slices.Delete(m.troubles, i, i+1)
		if len(m.troubles) == 0 {
			m.log.Info("source answers again", "connector", m.name, "failures", failures)
		}
	case i < 0:
		if !slices.ContainsFunc(m.troubles, func(t trouble) bool { return t.call == call }) {
			m.log.Warn("source call failed; trying again", "connector", m.name, "error", err)
		}
		m.troubles = append(m.troubles, trouble{call, part, 1, err.Error()})
	default:
		m.troubles[i].failures++
		m.troubles[i].err = err.Error()
	}
}

// untroubled forgets failures of calls that will not be made again.
func (m *machine) untroubled(gone func(trouble) bool) {
	m.troubles = slices.DeleteFunc(m.troubles, gone)
}

// sourceErr is what fails at the source; of several calls the one that has failed longest.
func (m *machine) sourceErr() string {
	if len(m.troubles) == 0 {
		return ""
	}
	return m.troubles[0].err
}

// pause is the backoff of a source call that failed.
func (m *machine) pause(call string, part int) time.Duration {
	failures := 0
	for _, t := range m.troubles {
		if t.call == call && t.part == part {
			failures = t.failures
		}
	}
	return 10*time.Millisecond + jitter(m.rand, 50*time.Millisecond, 2*time.Second, failures)
}
