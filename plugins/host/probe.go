package host

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// probe asks the process now and then whether it lives. One that answers nothing at all, neither a probe nor a call,
// for several probes and meanwhile does nothing is wedged; one that is at work is given longer, since a loaded machine
// slows it down as much as it slows down the probe. So is one that has a batch: a plugin whose threads all wait for a slow
// destination looks idle, and the batch has a deadline of its own. A wedged process gets SIGQUIT, on which a Go program prints all its
// goroutines, and is killed a moment later; the error says so. When ctx ends the answer is nil.
func (s *Sink) probe(ctx context.Context, p *process) error {
	ticker := time.NewTicker(s.timing.probeEvery)
	defer ticker.Stop()
	missed, idle := 0, 0
	answers := p.answers.Load()
	cpu, _ := cpuTicks(p.child.pid())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if _, unreachable := p.ask(ctx, s.timing.probeTimeout); unreachable {
			p.fate(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		now, readable := cpuTicks(p.child.pid())
		if seen := p.answers.Load(); seen != answers {
			missed, idle, answers, cpu = 0, 0, seen, now
			continue
		}
		missed++
		if idle++; readable && now != cpu || s.delivering.Load() > 0 {
			idle, cpu = 0, now
		}
		if idle < s.timing.misses && missed < s.timing.busyMisses {
			continue
		}
		p.child.signal(syscall.SIGQUIT)
		select {
		case <-p.child.dead:
		case <-time.After(s.timing.dump):
		}
		p.child.kill()
		return fmt.Errorf("the sink's process was wedged: it answered none of %d probes and was killed", missed)
	}
}
