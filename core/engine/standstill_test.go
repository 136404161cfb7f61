package engine

import (
	"testing"
	"time"
)

func TestAWatchTellsTheLongestStandstill(t *testing.T) {
	w := startWatch(time.Minute)
	w.last = w.last.Add(-5 * time.Second) // its last tick was five seconds earlier
	if stood := w.end(); stood < 4*time.Second || stood > 10*time.Second {
		t.Errorf("stood still for %v, want 5s less a tick", stood)
	}
	for _, c := range []struct {
		timeout, stood time.Duration
		notable        bool
	}{
		{30 * time.Second, 450 * time.Millisecond, false},
		{30 * time.Second, 600 * time.Millisecond, true},
		{time.Second, 200 * time.Millisecond, false},
		{time.Second, 300 * time.Millisecond, true},
		{50 * time.Millisecond, 100 * time.Millisecond, false},
	} {
		if got := notable(c.stood, c.timeout); got != c.notable {
			t.Errorf("%v in a call of %v: notable is %v", c.stood, c.timeout, got)
		}
	}
}
