//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// world is what accidents happen to.
type world struct {
	fleet     *fleet
	database  *database
	receiver  receiver
	takeovers *takeovers
	shares    bool // several daemons are at work at once
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

// inflict breaks something, when a daemon (the first one, if it is everybody's) has something on its way, and returns what
// mends it.
func (w *world) inflict(a *accident) (mend func() error, err error) {
	s := w.fleet.slots[max(a.slot, 0)]
	p := s.current()
	daemon := p.cmd.Process.Pid
	switch a.what {
	case daemonKill:
		killed := w.takeovers.before(w.fleet, s)
		w.flight(daemon)
		return w.kill(s, p, killed)
	case daemonTerm:
		w.flight(daemon)
		return w.terminate(s, p)
	case daemonStop:
		w.flight(daemon)
		err = syscall.Kill(daemon, syscall.SIGSTOP)
		return func() error { return syscall.Kill(daemon, syscall.SIGCONT) }, err
	case sinkKill, sinkStop:
		return w.hitSink(a.what, s, p)
	}
	w.flight(daemon)
	if s, m, is := a.breaks(); is {
		return w.disconnect(a.slot, s, m), nil
	}
	if a.server() == "database" {
		return w.database.hinder(a)
	}
	return w.receiver.hinder(a.what)
}

func (w *world) kill(s *slot, p *process, killed func(at time.Time)) (mend func() error, err error) {
	sink := p.sink()
	at := time.Now()
	p.asked.Store(true)
	if err := p.cmd.Process.Kill(); err != nil {
		return nil, err
	}
	if killed != nil {
		killed(at)
	}
	return func() error {
		<-p.ended
		if sink != 0 && !gone(sink) {
			return fmt.Errorf("the sink's process %d outlives its daemon", sink)
		}
		return w.fleet.start(s)
	}, nil
}

func (w *world) terminate(s *slot, p *process) (mend func() error, err error) {
	sink := p.sink()
	if err := p.stop(); err != nil {
		return nil, err
	}
	return func() error {
		if err := p.wait(); err != nil {
			return err
		}
		if sink != 0 && !gone(sink) {
			return fmt.Errorf("the sink's process %d outlives its daemon", sink)
		}
		return w.fleet.start(s)
	}, nil
}

// maxSinkKills is how many kills of its sink a daemon gets: five that hit a sink before it has delivered anything make
// the daemon leave it alone for minutes, which is another test's subject.
const maxSinkKills = 4

func (w *world) hitSink(how what, s *slot, p *process) (mend func() error, err error) {
	w.flight(p.cmd.Process.Pid)
	sink := p.sink()
	if sink == 0 || how == sinkKill && p.sinkKills == maxSinkKills {
		return nil, errMissed
	}
	signal := syscall.SIGSTOP
	if how == sinkKill {
		signal = syscall.SIGKILL
		p.sinkKills++
	}
	if err := syscall.Kill(sink, signal); errors.Is(err, syscall.ESRCH) {
		return nil, errMissed
	} else if err != nil {
		return nil, err
	}
	return func() error {
		// The daemon may have ended the process meanwhile, and the pid is of nobody or of one who ignores it.
		if how == sinkStop && s.current().sink() == sink {
			return syscall.Kill(sink, syscall.SIGCONT)
		}
		return nil
	}, nil
}

// disconnect does something to connections, and cuts them once when it does not last.
func (w *world) disconnect(slot int, s side, m mode) (mend func() error) {
	var links []*proxy
	for _, one := range w.fleet.slots {
		if slot == one.n || slot == everybody {
			links = append(links, one.links[s])
		}
	}
	for _, link := range links {
		if link.set(m); m == pass {
			link.cut()
		}
	}
	return func() error {
		for _, link := range links {
			link.set(pass)
		}
		return nil
	}
}
