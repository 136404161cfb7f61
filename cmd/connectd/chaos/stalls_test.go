//go:build linux

package chaos

import (
	"context"
	"errors"
	"time"
)

// lateness is how much longer than it should something took, from then on, that the harness does all the time: it did not
// run, or the database was slow. Then the daemons did not run either, or waited.
type lateness struct {
	from time.Time
	by   time.Duration
}

// stalls watches whether the machine lets this process run, and whether the database takes a small write. Where either
// stands still for long it is an accident of its own: the daemons could not renew a lease, and a row may come again with
// nobody to blame.
type stalls struct {
	start       time.Time
	done, ended chan struct{}
	list        []accident // read after stop
	late        []lateness // read after stop
}

const (
	stallLimit = lease / 6 // a daemon's call gets half a lease
	probeEvery = 50 * time.Millisecond
	probeTime  = 10 * time.Second
	usualLate  = 20 * time.Millisecond // of a sleep, and of a write
)

// watchStalls watches until stop. A probe that fails says that the database is away, which is an accident of its own.
func watchStalls(start time.Time, probe func(ctx context.Context) error) *stalls {
	s := &stalls{start: start, done: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for {
			slept := time.Now()
			select {
			case <-s.done:
				return
			case <-time.After(probeEvery):
			}
			asked := time.Now()
			s.note(machineStall, slept, asked.Sub(slept)-probeEvery)
			ctx, cancel := context.WithTimeout(context.Background(), probeTime)
			err := probe(ctx)
			away := err != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded)
			cancel()
			if !away {
				s.note(databaseStall, asked, time.Since(asked))
			}
		}
	}()
	return s
}

func (s *stalls) note(w what, from time.Time, by time.Duration) {
	if by > usualLate {
		s.late = append(s.late, lateness{from, by})
	}
	if by > stallLimit {
		s.list = append(s.list, accident{what: w, slot: everybody, at: from.Sub(s.start), lasts: by, began: from, ended: from.Add(by)})
	}
}

func (s *stalls) stop() {
	close(s.done)
	<-s.ended
}
