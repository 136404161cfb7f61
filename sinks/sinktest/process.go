package sinktest

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins"
	"github.com/connectd/connectd/plugins/host"
)

// process is a trial whose sink is a process.
type process struct {
	*trial
	program Program
}

type processCheck struct {
	name string
	run  func(c *process)
}

func processChecks() []processCheck {
	return []processCheck{
		{"process/signals", checkSignals},
		{"process/killed", checkKilled},
		{"process/daemon gone", checkDaemonGone},
		{"process/by hand", checkByHand},
	}
}

func (c *process) status() host.Status { return c.Sink.(*host.Sink).Status() }

// signal sends a signal to the sink's process, whichever that is when it is sent.
func (c *process) signal(s syscall.Signal) {
	if pid := c.status().PID; pid > 0 {
		_ = syscall.Kill(pid, s) // it may have ended by itself; then the check finds that
	}
}

// checkSignals sends the process what a terminal or a service manager sends to a whole group: the daemon decides when a
// sink ends, so nothing may happen.
func checkSignals(c *process) {
	c.open()
	pid := c.status().PID
	var all []core.Record
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		batch := c.records(100, "a", "b", "")
		batch = batch[:c.fits(batch)]
		c.signal(s)
		if _, err := c.deliver(c.within(c.patience), batch); err != nil {
			c.Fatalf("the process did not survive %v: %v", s, err)
		}
		all = append(all, batch...)
	}
	c.wantArrived(all)
	if st := c.status(); st.PID != pid || st.Restarts > 0 {
		c.Errorf("the process did not survive all of SIGTERM, SIGINT and SIGHUP: %d restarts, last exit: %s", st.Restarts, st.LastExit)
	}
}

// checkKilled kills the process twice, in the middle of calls: a call in flight fails as one whose sink died, another
// process takes over by itself, and in the end everything is there, in order.
func checkKilled(c *process) {
	c.open()
	var all []core.Record
	for i := range 12 {
		batch := c.records(100, "a", "b", "")
		batch = batch[:c.fits(batch)]
		all = append(all, batch...)
		if i == 3 || i == 8 {
			before := c.status()
			kill := time.AfterFunc(time.Duration(i)*100*time.Microsecond, func() { c.signal(syscall.SIGKILL) })
			c.deliverDespiteDeath(batch, before)
			kill.Stop()
			continue
		}
		c.deliverAll(batch)
	}
	c.wantArrived(all)
	c.wantOrder(all)
}

// deliverDespiteDeath sends the batch until it is delivered and the process has been replaced.
func (c *process) deliverDespiteDeath(batch []core.Record, before host.Status) {
	c.Helper()
	ctx := c.within(c.patience)
	sent := false
	for done := false; !done; time.Sleep(5 * time.Millisecond) {
		if !sent {
			outcomes, err := c.deliver(ctx, batch)
			if err != nil && !errors.Is(err, core.ErrSinkDied) && !errors.Is(err, core.ErrNotSent) {
				c.Errorf("Deliver to a process that was killed: %v", err)
			}
			sent = err == nil
			for i, o := range outcomes {
				if o.Kind != core.Delivered {
					c.Errorf("record %d is %s", i, show(o))
				}
			}
		}
		st := c.status()
		done = sent && st.State == host.Running && st.PID != before.PID
		if ctx.Err() != nil {
			c.Fatalf("after its process was killed the sink is %s: %s", st.State, st.Reason)
		}
	}
}

// checkDaemonGone starts the process the way the daemon does and lets go of its stdin, which is all that happens when a
// daemon is killed. A process that stayed would go on holding locks and connections, and send.
func checkDaemonGone(c *process) {
	cmd, output := c.started()
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		c.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.Fatalf("start %s: %v", c.program.Path, err)
	}
	ready, ended := make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if strings.Count(lines.Text(), "|") >= 4 { // the handshake
				ready <- true
			}
		}
		ready <- false
		_ = cmd.Wait()
	}()
	defer func() {
		_ = cmd.Process.Kill()
		<-ended
	}()
	select {
	case ok := <-ready:
		if !ok {
			c.Fatalf("%s ended before its handshake; it wrote: %s", c.program.Path, output)
		}
	case <-time.After(c.patience):
		c.Fatalf("no handshake from %s", c.program.Path)
	}
	_ = lifeline.Close()
	select {
	case <-ended:
	case <-time.After(c.patience):
		c.Errorf("the process lives on without its daemon")
	}
}

// started is the command as the daemon would start it, without its pipes, and where its stderr goes.
func (c *process) started() (*exec.Cmd, *bytes.Buffer) {
	dir := shortDir(c)
	handshake := plugins.Handshake()
	cmd := exec.Command(c.program.Path, c.program.Args...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		handshake.MagicCookieKey + "=" + handshake.MagicCookieValue,
		"PLUGIN_PROTOCOL_VERSIONS=1", "PLUGIN_UNIX_SOCKET_DIR=" + dir, "TMPDIR=" + dir,
	}, c.program.Env...)
	output := new(bytes.Buffer)
	cmd.Stderr = output
	return cmd, output
}

// checkByHand starts the program in a way a person would: it must say something and end.
func checkByHand(c *process) {
	ctx := c.within(c.patience)
	cmd := exec.CommandContext(ctx, c.program.Path, c.program.Args...)
	cmd.Env = append(os.Environ(), c.program.Env...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		c.Fatalf("started by hand, the program does not end")
	}
	if err == nil || len(bytes.TrimSpace(out)) == 0 {
		c.Errorf("started by hand, the program says %q and ends with %v; it should explain itself and fail", out, err)
	}
}
