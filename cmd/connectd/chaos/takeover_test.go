//go:build linux

package chaos

import (
	"context"
	"slices"
	"sync"
	"time"
)

// takeover is how long the partitions of a daemon that was killed waited for others.
type takeover struct {
	killed time.Time
	done   time.Time // when others had all of them, or when nobody looked any more
	over   bool      // others had all of them
	ready  bool      // all other daemons were at work when it was killed
}

func (t takeover) took() time.Duration { return t.done.Sub(t.killed) }

// takeovers measures them by the lease table.
type takeovers struct {
	database *database
	ctx      context.Context // ends the waits that have no end
	wg       sync.WaitGroup

	mu   sync.Mutex
	list []takeover
}

// look is how often the lease table is looked at.
const look = 25 * time.Millisecond

// before notes what a daemon has. What it returns is called when the daemon was killed, and waits in the background. It
// returns nil for a daemon that has nothing, or of which the database says nothing now.
func (t *takeovers) before(f *fleet, s *slot) (killed func(at time.Time)) {
	ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
	defer cancel()
	owner, err := t.database.owner(ctx, s.current().cmd.Process.Pid)
	if err != nil || owner == "" {
		return nil
	}
	if n, err := t.database.leases(ctx, owner); err != nil || n == 0 {
		return nil
	}
	ready := t.atWork(ctx, f)
	return func(at time.Time) { t.wg.Go(func() { t.follow(owner, at, ready) }) }
}

// atWork says that every daemon runs and its sink is open: else it has no heartbeat.
func (t *takeovers) atWork(ctx context.Context, f *fleet) bool {
	return !slices.ContainsFunc(f.slots, func(s *slot) bool {
		owner, err := t.database.owner(ctx, s.current().cmd.Process.Pid)
		return err != nil || owner == ""
	})
}

func (t *takeovers) follow(owner string, killed time.Time, ready bool) {
	one := takeover{killed: killed, ready: ready}
	for !one.over && t.ctx.Err() == nil {
		select {
		case <-t.ctx.Done():
		case <-time.After(look):
		}
		n, err := t.database.leases(t.ctx, owner)
		one.over = err == nil && n == 0
	}
	one.done = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = append(t.list, one)
}

// grain is what the law of takeovers allows beyond a lease and a poll: a tenth of the third of a lease after which daemons
// look who lives, the statements themselves, and the harness's own looking.
const grain = lease/30 + 300*time.Millisecond

// judged says whether nothing but the kill itself could keep others from taking over, and how long they may need then. What
// broke after that time is no excuse. Where the machine or the database was slow, they may need as much longer as each of
// their steps was late, and there are some, one after another: to see the dead one's end, to take, to commit. Where the
// database's clock jumped back, or had just done so, leases last longer by the jump.
func (h *history) judged(t takeover) (limit time.Duration, ok bool) {
	const steps = 3
	limit = h.fleet.lease + h.fleet.poll + grain
	for _, l := range h.late {
		if l.from.Before(t.done) && l.from.Add(l.by).After(t.killed) {
			limit += steps * l.by
		}
	}
	for _, a := range h.accidents {
		if a.what == clockBack && a.began.Before(t.done) && a.began.Add(h.fleet.lease).After(t.killed) {
			limit += a.lasts
		}
	}
	due := t.killed.Add(min(limit, t.took()))
	return limit, h.fleet.shares && t.ready && !slices.ContainsFunc(h.accidents, func(a accident) bool {
		return a.disturbs() && a.began.Before(due) && a.ended.After(t.killed.Add(-calmBefore/2)) && !a.killedThen(t)
	})
}

// killedThen says that the accident is the kill itself.
func (a accident) killedThen(t takeover) bool {
	return a.what == daemonKill && !a.began.After(t.killed) && !a.ended.Before(t.killed)
}

// disturbs says that the accident can keep daemons from taking over. What breaks at the destination cannot: they take
// partitions and wait for it; nor can what is counted as lateness, or by how much a clock jumped.
func (a accident) disturbs() bool {
	return a.server() != "destination" && a.what != clockBack && a.what != machineStall && a.what != databaseStall
}

// taken holds takeovers against the law.
func (c *checker) taken() {
	for _, t := range c.takeovers {
		if limit, ok := c.judged(t); ok && t.took() > limit {
			c.fail("", "a daemon was killed at %s, and %v later others had all of its partitions: %t; %v are allowed", clock(t.killed), t.took(), t.over, limit)
		}
	}
}

// times are how long takeovers took, in order: all of them, and those that the law is about.
func (h *history) times() (all, judged []time.Duration) {
	for _, t := range h.takeovers {
		if !t.over { // the run ended before
			continue
		}
		all = append(all, t.took())
		if _, ok := h.judged(t); ok {
			judged = append(judged, t.took())
		}
	}
	slices.Sort(all)
	slices.Sort(judged)
	return all, judged
}
