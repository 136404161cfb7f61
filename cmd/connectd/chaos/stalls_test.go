//go:build linux

package chaos

import (
	"context"
	"errors"
	"time"
)

// stalls notes when the machine let this process not run for a while, or the database did not take a small write of it: then
// the daemons could not renew a lease either, and a row may come again with nobody to blame.
type stalls struct {
	done, ended chan struct{}
	list        []accident // read after stop
}

const (
	stallLimit = lease / 6 // a daemon's call gets half a lease
	probeEvery = 50 * time.Millisecond
	probeTime  = 10 * time.Second
)

// watchStalls watches until stop. A probe that fails says that the database is away, which is an accident of its own.
func watchStalls(start time.Time, probe func(ctx context.Context) error) *stalls {
	s := &stalls{done: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for last := time.Now(); ; {
			select {
			case <-s.done:
				return
			case <-time.After(probeEvery):
			}
			ctx, cancel := context.WithTimeout(context.Background(), probeTime)
			err := probe(ctx)
			away := err != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded)
			cancel()
			now := time.Now()
			if gap := now.Sub(last); gap > stallLimit && !away {
				s.list = append(s.list, accident{what: machineStall, slot: everybody, at: last.Sub(start), lasts: gap, began: last, ended: now})
			}
			last = now
		}
	}()
	return s
}

func (s *stalls) stop() []accident {
	close(s.done)
	<-s.ended
	return s.list
}
