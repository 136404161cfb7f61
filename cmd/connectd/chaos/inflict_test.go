//go:build linux

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// world is what accidents happen to.
type world struct {
	fleet     *fleet
	database  *database
	receiver  receiver
	takeovers *takeovers
}

// moment is when an accident begins or ends.
type moment struct {
	at   time.Duration
	i    int // the accident's
	ends bool
}

// play lets the schedule happen and returns what did, with the times at which it really did. Everything is mended at the
// end. It returns early with the first thing that must not happen: a daemon that ends by itself, or with an error.
func (w *world) play(schedule []accident, start time.Time) (happened []accident, err error) {
	var moments []moment
	for i, a := range schedule {
		moments = append(moments, moment{a.at, i, false}, moment{a.at + a.lasts, i, true})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	list := slices.Clone(schedule)
	pids := make([]int, len(list)) // of the process that is stopped, or must be gone
	for _, m := range moments {
		time.Sleep(time.Until(start.Add(m.at)))
		if err = w.fleet.check(); err != nil {
			break
		}
		a := &list[m.i]
		switch {
		case !m.ends:
			began, missed := time.Now(), false
			if missed, err = w.begin(a, &pids[m.i]); !missed {
				a.began = began
			}
		case !a.began.IsZero():
			err = w.end(a, pids[m.i])
			a.ended = time.Now()
		}
		if err != nil {
			err = fmt.Errorf("%v: %w", *a, err)
			break
		}
	}
	for i := range list {
		if list[i].ended.IsZero() { // cut short
			list[i].ended = time.Now()
		}
	}
	return slices.DeleteFunc(list, func(a accident) bool { return a.began.IsZero() }), err
}

// flight waits, not for long, until a daemon has something on its way: what breaks then shows more.
func (w *world) flight(pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	owner, err := w.database.owner(ctx, pid)
	for err == nil && owner != "" && ctx.Err() == nil {
		var n int
		if n, err = w.database.sending(ctx, owner); n > 0 {
			return
		}
	}
}

// begin breaks something. What was not there, or cannot be broken here, is missed.
func (w *world) begin(a *accident, pid *int) (missed bool, err error) {
	if s, m, is := a.breaks(); is {
		w.flight(w.fleet.slots[max(a.slot, 0)].process.cmd.Process.Pid)
		for _, link := range w.links(a, s) {
			if link.set(m); m == pass {
				link.cut()
			}
		}
		return false, nil
	}
	p := w.fleet.slots[max(a.slot, 0)].process // everybody's accidents hit when the first has something on its way
	daemon := p.cmd.Process.Pid
	killed := w.takeovers.before(daemon)
	sink := p.sink()
	if sink == 0 && (a.what == sinkKill || a.what == sinkStop) {
		return true, nil
	}
	w.flight(daemon)
	switch a.what {
	case daemonKill:
		at := time.Now()
		*pid, p.asked = sink, true
		if err = p.cmd.Process.Kill(); killed != nil {
			killed(at)
		}
	case daemonTerm:
		err = p.stop()
	case daemonStop:
		*pid = daemon
		err = syscall.Kill(daemon, syscall.SIGSTOP)
	case sinkKill, sinkStop:
		*pid = sink
		err = syscall.Kill(sink, map[what]syscall.Signal{sinkKill: syscall.SIGKILL, sinkStop: syscall.SIGSTOP}[a.what])
		if errors.Is(err, syscall.ESRCH) {
			return true, nil
		}
	case databaseKill:
		w.database.servers.Kill(w.database.server)
	case databaseRestart:
		w.database.servers.Stop(w.database.server)
	case targetSlow:
		w.receiver.slow(300 * time.Millisecond)
	case targetRefuse:
		w.receiver.refuse(true)
	case diskFull:
		if err = w.receiver.fill(true); errors.Is(err, errors.ErrUnsupported) {
			return true, nil
		}
	}
	return false, err
}

// end mends what the accident broke.
func (w *world) end(a *accident, pid int) error {
	if s, _, is := a.breaks(); is {
		for _, link := range w.links(a, s) {
			link.set(pass)
		}
		return nil
	}
	switch a.what {
	case daemonKill, daemonTerm:
		s := w.fleet.slots[a.slot]
		if a.what == daemonTerm {
			if err := s.process.wait(); err != nil {
				return err
			}
		}
		<-s.process.ended
		if pid != 0 && !gone(pid) {
			return fmt.Errorf("the sink's process %d outlives its daemon", pid)
		}
		return w.fleet.start(s)
	case daemonStop:
		return syscall.Kill(pid, syscall.SIGCONT)
	case sinkStop:
		// The daemon may have ended the process meanwhile, and the pid is of nobody or of one who ignores it.
		if w.fleet.slots[a.slot].process.sink() == pid {
			return syscall.Kill(pid, syscall.SIGCONT)
		}
	case databaseKill, databaseRestart:
		w.database.servers.Start(w.database.server)
	case targetSlow:
		w.receiver.slow(0)
	case targetRefuse:
		w.receiver.refuse(false)
	case diskFull:
		return w.receiver.fill(false)
	}
	return nil
}

// links are the proxies that the accident is about.
func (w *world) links(a *accident, s side) (list []*proxy) {
	for _, one := range w.fleet.slots {
		if a.slot == one.n || a.slot == everybody {
			list = append(list, one.links[s])
		}
	}
	return list
}
