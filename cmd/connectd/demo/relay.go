package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// relay is the connectd program: a daemon as a child process, and its commands.
type relay struct {
	program, config, log string

	daemon *exec.Cmd
	exited chan error
}

// command runs a connectd command to its end and returns what it printed.
func (r *relay) command(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, r.program, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out, fmt.Errorf("connectd %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return out, fmt.Errorf("connectd %s: %w", args[0], err)
	}
	return out, nil
}

func (r *relay) init(ctx context.Context) error {
	_, err := r.command(ctx, "init", "-c", r.config)
	return err
}

// start starts the daemon; its log goes to a file.
func (r *relay) start() error {
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the daemon's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	// Not bound to a context: the demo stops it, or kills it, at times of its own.
	cmd := exec.Command(r.program, "run", "-c", r.config, "--http", "off") //nolint:noctx // see above
	cmd.Stderr = log
	// A Ctrl-C in the terminal is for the demo, which then stops the daemon itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	r.daemon, r.exited = cmd, exited
	return nil
}

func (r *relay) pid() int { return r.daemon.Process.Pid }

// kill ends the daemon at once, if it runs.
func (r *relay) kill() {
	if r.daemon == nil {
		return
	}
	_ = r.daemon.Process.Kill()
	<-r.exited
	r.daemon = nil
}

// stop asks the daemon to drain and end.
func (r *relay) stop(limit time.Duration) error {
	if err := r.daemon.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the daemon: %w", err)
	}
	select {
	case err := <-r.exited:
		r.daemon = nil
		if err != nil {
			return fmt.Errorf("the daemon ended with %w; its log is in %s", err, r.log)
		}
		return nil
	case <-time.After(limit):
		return fmt.Errorf("the daemon did not end within %v", limit)
	}
}

// sinkPID asks `connectd status` for the pid of the sink's process.
func (r *relay) sinkPID(ctx context.Context) (int, error) {
	out, err := r.command(ctx, "status", "-c", r.config, "--json")
	if err != nil {
		return 0, err
	}
	var answer struct {
		Connectors []struct {
			Workers []struct {
				Published struct {
					PID    int `json:"pid"`
					Plugin struct {
						PID int `json:"pid"`
					} `json:"plugin"`
				} `json:"published"`
			} `json:"workers"`
		} `json:"connectors"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return 0, fmt.Errorf("read the answer of connectd status: %w", err)
	}
	for _, c := range answer.Connectors {
		for _, w := range c.Workers {
			if w.Published.PID == r.pid() {
				return w.Published.Plugin.PID, nil
			}
		}
	}
	return 0, nil
}

// killSink kills the sink's process between moment's return and its end, and waits until another one has taken its place.
func (r *relay) killSink(ctx context.Context, s *screen, moment func() (end func())) error {
	victim, err := r.otherSink(ctx, 0)
	if err != nil {
		return err
	}
	end := moment()
	err = syscall.Kill(victim, syscall.SIGKILL)
	end()
	if err != nil {
		return fmt.Errorf("kill the sink's process: %w", err)
	}
	s.accident("kill -9 the sink's process while the receiver works (pid %d)", victim)
	next, err := r.otherSink(ctx, victim)
	if err != nil {
		return err
	}
	s.event("connectd has started the sink again (pid %d)", next)
	return nil
}

// otherSink waits until the daemon has published a sink's process that is not the one given.
func (r *relay) otherSink(ctx context.Context, not int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		pid, err := r.sinkPID(ctx)
		if err != nil {
			return 0, err
		}
		if pid != 0 && pid != not {
			return pid, nil
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return 0, errors.New("the sink's process did not appear in connectd status within 10s")
		}
	}
}

// killAndRestart kills the daemon between moment's return and its end, and starts another one.
func (r *relay) killAndRestart(ctx context.Context, s *screen, moment func() (end func())) error {
	victim := r.pid()
	end := moment()
	r.kill()
	end()
	s.accident("kill -9 connectd while the receiver works (pid %d); its lease runs out in 2 seconds", victim)
	if err := pause(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	if err := r.start(); err != nil {
		return err
	}
	s.event("connectd is started again (pid %d)", r.pid())
	return nil
}
