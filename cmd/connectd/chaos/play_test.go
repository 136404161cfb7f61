//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// errMissed says that an accident cannot happen: what it is about is not there now, or cannot be broken here.
var errMissed = errors.New("missed")

// mostLate is how late an accident may begin that had to wait for what was broken before. A machine that is so busy is not
// given more to do than the schedule has. A kill in the calm waits as long as it takes.
const mostLate = 2 * time.Second

// stage is where a schedule is played: its accidents happen at their times and beside each other, but to each part only
// one at a time.
type stage struct {
	world *world
	start time.Time
	total time.Duration
	parts map[string]*sync.Mutex

	once   sync.Once
	broken chan struct{} // closed when something happened that must not
	err    error         // which, when it is closed
}

// play lets the schedule happen and returns what did, with the times at which it really did. Everything is mended at the
// end. It returns early with the first thing that must not happen: a daemon that ends by itself, or with an error.
func (w *world) play(schedule []accident, start time.Time, total time.Duration) (happened []accident, err error) {
	s := &stage{world: w, start: start, total: total, parts: map[string]*sync.Mutex{}, broken: make(chan struct{})}
	daemons := len(w.fleet.slots)
	for _, part := range allParts(daemons) {
		s.parts[part] = new(sync.Mutex)
	}
	list := slices.Clone(schedule)
	var all sync.WaitGroup
	for i := range list {
		all.Go(func() { s.happen(&list[i]) })
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-time.After(100 * time.Millisecond):
			if err := w.fleet.check(); err != nil {
				s.fail(err)
			}
		}
	}
	return slices.DeleteFunc(list, func(a accident) bool { return a.began.IsZero() }), s.err
}

func (s *stage) fail(err error) {
	s.once.Do(func() {
		s.err = err
		close(s.broken)
	})
}

// sleep waits until then, and reports whether the play goes on.
func (s *stage) sleep(until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.broken:
		return false
	}
}

// calm waits until all daemons are at work, not for long, and then a while. It reports whether the play goes on.
func (s *stage) calm() bool {
	ctx, cancel := context.WithTimeout(context.Background(), calmWait)
	defer cancel()
	w := s.world
	for w.shares && !w.takeovers.atWork(ctx, w.fleet) && ctx.Err() == nil {
		if !s.sleep(time.Now().Add(look)) {
			return false
		}
	}
	return s.sleep(time.Now().Add(calmBefore))
}

// happen lets one accident happen and mends what it broke, whatever else goes wrong.
func (s *stage) happen(a *accident) {
	due := s.start.Add(a.at)
	if !s.sleep(due) {
		return
	}
	parts := a.parts(len(s.world.fleet.slots))
	if a.calm {
		parts = allParts(len(s.world.fleet.slots))
	}
	for _, part := range parts {
		s.parts[part].Lock()
		defer s.parts[part].Unlock()
	}
	if a.calm && !s.calm() {
		return
	}
	if now := time.Now(); !a.calm && (now.Sub(s.start) >= s.total || now.Sub(due) > mostLate) {
		return
	}
	began := time.Now()
	mend, err := s.world.inflict(a)
	if errors.Is(err, errMissed) {
		return
	}
	a.began = began
	if err == nil {
		s.sleep(time.Now().Add(a.lasts))
	}
	if mend != nil {
		err = errors.Join(err, mend())
	}
	a.ended = time.Now()
	if err != nil {
		s.fail(fmt.Errorf("%v: %w", *a, err))
		return
	}
	s.sleep(time.Now().Add(apart))
}
