package main

import (
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// manager starts a daemon again whenever it is gone, as a service manager does.
type manager struct {
	mu  sync.Mutex
	all []*daemonProcess
}

// manage keeps a daemon running in the directory until the test ends.
func manage(t *testing.T, dir string) *manager {
	t.Helper()
	m := &manager{}
	stop, stopped := make(chan struct{}), make(chan struct{})
	program := daemonCommand(t)
	go func() {
		defer close(stopped)
		for {
			d, err := spawn(t, dir, exec.Command(program.Path, program.Args[1:]...))
			if err != nil {
				t.Errorf("start a daemon: %v", err)
				return
			}
			m.mu.Lock()
			m.all = append(m.all, d)
			m.mu.Unlock()
			select {
			case <-d.exited:
			case <-stop:
				d.end()
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	return m
}

// starts is how many daemons there were.
func (m *manager) starts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all)
}

// crashes is how many processes of sinks and daemons have died.
func (m *manager) crashes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := max(len(m.all)-1, 0)
	for _, d := range m.all {
		n += strings.Count(d.log.String(), `msg="the sink's process is started again"`)
	}
	return n
}
