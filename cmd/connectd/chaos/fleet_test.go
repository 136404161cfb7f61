//go:build linux

package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for something that must happen; the machine may be busy.
const patience = 90 * time.Second

// fleet is the daemons that share one configuration.
type fleet struct {
	program string
	dir     string
	slots   []*slot
}

// slot is a place for one daemon at a time, with its own ways to the servers.
type slot struct {
	n     int
	env   []string
	links map[side]*proxy

	mu      sync.Mutex
	process *process
	starts  int
}

// current is the daemon that runs there, or did last.
func (s *slot) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// process is one life of a daemon.
type process struct {
	cmd   *exec.Cmd
	log   string        // its file
	ended chan struct{} // closed when it has been waited for
	asked atomic.Bool   // its end was asked for

	sinkKills int // of its sink
}

// newFleet writes the configuration and makes a slot for each daemon; init makes the table.
func newFleet(t *testing.T, program, dir string, p pair, d *database, r receiver) *fleet {
	t.Helper()
	f := &fleet{program: program, dir: dir}
	if err := os.WriteFile(f.config(), []byte(p.yaml(r.yaml(), installKiller(t, dir))), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range p.daemons {
		s := &slot{n: n, links: map[side]*proxy{}}
		addresses := map[side]string{toSource: d.address, toTarget: r.address()}
		for side, address := range addresses {
			if address != "" {
				s.links[side] = newProxy(t, address, side == toTarget && p.sink == "kafka")
				addresses[side] = s.links[side].addr
			}
		}
		s.env = append(os.Environ(), sourceVariable+"="+d.dsn(addresses[toSource]), targetVariable+"="+r.target(addresses[toTarget]))
		f.slots = append(f.slots, s)
	}
	init := exec.CommandContext(t.Context(), program, "init", "-c", f.config())
	init.Env, init.Dir = f.slots[0].env, dir
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("connectd init: %v\n%s", err, out)
	}
	t.Cleanup(f.kill)
	return f
}

func (f *fleet) config() string { return filepath.Join(f.dir, "connectd.yaml") }

// start starts a slot's next daemon.
func (f *fleet) start(s *slot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &process{log: filepath.Join(f.dir, fmt.Sprintf("daemon-%d-%02d.log", s.n, s.starts)), ended: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(f.program, "run", "-c", f.config())
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr, p.cmd.Stdout = f.dir, s.env, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal of the terminal is for the harness
	if err := p.cmd.Start(); err != nil {
		return err
	}
	s.process = p
	s.starts++
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	return nil
}

// kill ends what still runs; the sinks' processes end with their daemons.
func (f *fleet) kill() {
	for _, s := range f.slots {
		if p := s.current(); p != nil {
			p.asked.Store(true)
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
}

// check says which daemons have ended by themselves.
func (f *fleet) check() error {
	var all []error
	for _, s := range f.slots {
		p := s.current()
		select {
		case <-p.ended:
			if p.asked.CompareAndSwap(false, true) { // said once
				all = append(all, fmt.Errorf("daemon %d has ended by itself, %v:\n%s", s.n, p.cmd.ProcessState, p.tail()))
			}
		default:
		}
	}
	return errors.Join(all...)
}

// stop asks for the process's end and returns at once.
func (p *process) stop() error {
	if err := p.listens(); err != nil {
		return err
	}
	p.asked.Store(true)
	return p.cmd.Process.Signal(syscall.SIGTERM)
}

// listens waits until the process catches signals: it has done so before it says anything.
func (p *process) listens() error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if text, _ := os.ReadFile(p.log); bytes.Contains(text, []byte("msg=")) {
			return nil
		}
	}
	return fmt.Errorf("a daemon says nothing for %v:\n%s", patience, p.tail())
}

// wait waits for the end that stop asked for. It must be a good one.
func (p *process) wait() error {
	select {
	case <-p.ended:
	case <-time.After(patience):
		return fmt.Errorf("a daemon does not end within %v of SIGTERM:\n%s", patience, p.tail())
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("a daemon ends with %v after SIGTERM:\n%s", p.cmd.ProcessState, p.tail())
	}
	return nil
}

// tail is the end of the process's log.
func (p *process) tail() string {
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-4000):])
}

// sink is the pid of the daemon's sink, or 0 when it has none now. The daemon may have ended.
func (p *process) sink() int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, after, _ := strings.Cut(string(text), ") ") // state, parent
		fields := strings.Fields(after)
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(p.cmd.Process.Pid) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

// gone waits until a process has ended, a few seconds at most.
func gone(pid int) bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || bytes.Contains(state, []byte(") Z ")) {
			return true
		}
	}
	return false
}

// traces looks in all logs for what must never be there.
func (f *fleet) traces() error {
	logs, err := filepath.Glob(filepath.Join(f.dir, "daemon-*.log"))
	if err != nil {
		return err
	}
	var all []error
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, sign := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
			if at := bytes.Index(text, []byte(sign)); at >= 0 {
				all = append(all, fmt.Errorf("%s: %s", filepath.Base(path), text[at:min(at+4000, len(text))]))
			}
		}
	}
	return errors.Join(all...)
}
