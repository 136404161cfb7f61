package daemon

import (
	"sync"
	"time"
)

// meterSeconds is the span a rate is taken over.
const meterSeconds = 10

// meter measures a rate over the last ten full seconds. Safe for concurrent use.
type meter struct {
	now func() time.Time

	mu      sync.Mutex
	started int64
	buckets [meterSeconds + 1]int64 // the running second and the ten before it
	second  int64                   // of the newest bucket
}

func newMeter(now func() time.Time) *meter {
	s := now().Unix()
	return &meter{now: now, started: s, second: s}
}

// add counts n events now.
func (m *meter) add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	m.buckets[m.second%int64(len(m.buckets))] += n
}

// perSecond is the mean over the last ten full seconds, or over the full seconds since the start when those are fewer.
func (m *meter) perSecond() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	var sum int64
	for i, n := range m.buckets {
		if int64(i) != m.second%int64(len(m.buckets)) {
			sum += n
		}
	}
	span := min(m.second-m.started, meterSeconds)
	if span <= 0 {
		return 0
	}
	return float64(sum) / float64(span)
}

// advance empties the buckets of the seconds that passed since the last call.
func (m *meter) advance() {
	now := m.now().Unix()
	if now-m.second > int64(len(m.buckets)) {
		m.buckets = [meterSeconds + 1]int64{}
		m.second = now
		return
	}
	for m.second < now {
		m.second++
		m.buckets[m.second%int64(len(m.buckets))] = 0
	}
}
