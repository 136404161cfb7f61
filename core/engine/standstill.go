package engine

import (
	"sync"
	"time"
)

// watch notices that this process stood still while a call ran: it was stopped, its machine was paused, asleep or starved.
// A deadline that passed meanwhile says nothing about who was called, whose machine may have stood still with ours. It
// ticks, and the longest time between two ticks tells: by the monotonic clock, or by the wall's where the other one sleeps
// with the machine.
type watch struct {
	every   time.Duration
	stop    chan struct{}
	ended   sync.WaitGroup
	last    time.Time
	longest time.Duration
}

// startWatch begins to watch a call that has so long.
func startWatch(timeout time.Duration) *watch {
	w := &watch{every: min(max(timeout/10, 10*time.Millisecond), time.Second), stop: make(chan struct{}), last: time.Now()}
	w.ended.Go(func() {
		tick := time.NewTicker(w.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.look()
			case <-w.stop:
				w.look()
				return
			}
		}
	})
	return w
}

func (w *watch) look() {
	now := time.Now()
	w.longest = max(w.longest, now.Sub(w.last), now.Round(0).Sub(w.last.Round(0)))
	w.last = now
}

// end ends the watch and says for how long the process stood still at most.
func (w *watch) end() time.Duration {
	close(w.stop)
	w.ended.Wait()
	return w.longest - w.every
}

// notable says whether a standstill was so long that the call's deadline proves nothing. What a busy machine makes a
// goroutine wait is not.
func notable(stood, timeout time.Duration) bool {
	return stood > min(max(timeout/4, 250*time.Millisecond), 500*time.Millisecond)
}
