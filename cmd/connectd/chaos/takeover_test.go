//go:build linux

package chaos

import (
	"context"
	"slices"
	"sync"
	"time"
)

// takeovers measures how long the partitions of a daemon that was killed wait for another one, by the lease table.
type takeovers struct {
	database *database
	ctx      context.Context // ends the waits that have no end
	wg       sync.WaitGroup

	mu   sync.Mutex
	list []takeover
}

// takeover is from a kill to the moment when others have all partitions of the killed daemon.
type takeover struct{ killed, done time.Time }

// before notes what a daemon has. What it returns is called when the daemon was killed, and waits in the background. It
// returns nil for a daemon that has nothing, or of which the database says nothing now.
func (t *takeovers) before(pid int) (killed func(at time.Time)) {
	ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
	defer cancel()
	owner, err := t.database.owner(ctx, pid)
	if err != nil || owner == "" {
		return nil
	}
	if n, err := t.database.leases(ctx, owner); err != nil || n == 0 {
		return nil
	}
	return func(at time.Time) { t.wg.Go(func() { t.follow(owner, at) }) }
}

func (t *takeovers) follow(owner string, killed time.Time) {
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-time.After(25 * time.Millisecond):
		}
		if n, err := t.database.leases(t.ctx, owner); err == nil && n == 0 {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.list = append(t.list, takeover{killed, time.Now()})
			return
		}
	}
}

// took returns, in order, how long the takeovers took: all of them, and those that nothing else could make longer.
func (t *takeovers) took(accidents []accident) (all, quiet []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.list {
		others := 0
		for _, a := range accidents {
			if a.began.Before(one.done) && a.ended.After(one.killed) && a.what != targetSlow && a.what != targetRefuse {
				others++
			}
		}
		all = append(all, one.done.Sub(one.killed))
		if others <= 1 { // the kill itself
			quiet = append(quiet, one.done.Sub(one.killed))
		}
	}
	slices.Sort(all)
	slices.Sort(quiet)
	return all, quiet
}
