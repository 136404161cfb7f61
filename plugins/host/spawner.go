package host

import (
	"errors"
	"runtime"
)

// spawner starts processes from one thread that lives as long as it does: the kernel sends a child its death signal
// when the thread that started it ends, not the process.
type spawner struct {
	jobs chan func()
	quit chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func()), quit: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) run() {
	runtime.LockOSThread() // and never unlocked: when this goroutine ends, so does the thread
	for {
		select {
		case job := <-s.jobs:
			job()
		case <-s.quit:
			return
		}
	}
}

// do runs start on the spawner's thread.
func (s *spawner) do(start func() error) error {
	result := make(chan error, 1)
	select {
	case s.jobs <- func() { result <- start() }:
		return <-result
	case <-s.quit:
		return errors.New("the host is closing")
	}
}

// close ends the thread, and with it every process it started that still runs.
func (s *spawner) close() { close(s.quit) }
