package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// handshakeLine is how a plugin's answer begins: core version, protocol version, network. The rest is go-plugin's.
var handshakeLine = regexp.MustCompile(`^\d+\|(\d+)\|(unix|tcp)\|`)

const (
	pipeGrace   = 300 * time.Millisecond // for output of a dead process that a child of it may still hold open
	textBusy    = 5                      // tries to start a program that is still being written
	textBusyGap = 50 * time.Millisecond
	quotedLines = 5 // of output in an error
)

// child is one operating system process. go-plugin drives its start through the runner interface; the process ends
// through kill, by itself, or with the daemon, whose end of its stdin it watches.
type child struct {
	spec   *Spec
	dir    string
	pinned *os.File // the program, when it must be exactly this one; closed by start
	out    *output
	spawn  *spawner
	env    []string // go-plugin's part

	cmd     *exec.Cmd
	started time.Time
	stdin   *os.File // the lifeline: never written to
	pipes   []*os.File
	readers sync.WaitGroup
	// What go-plugin reads: the handshake line, and an empty stderr that ends with the process.
	stdoutR, stderrR *io.PipeReader
	stdoutW, stderrW *io.PipeWriter

	dead chan struct{} // closed when the process has ended and its group was killed
	done chan struct{} // closed when its output has been read, too
	// onExit is called before dead is closed.
	onExit func()

	mu       sync.Mutex
	reaped   bool // the process number is no longer ours
	state    *os.ProcessState
	killed   bool     // by us
	early    []string // what it printed to stdout before the handshake
	version  string   // of the protocol, as the plugin said it
	socket   string
	spawnErr error
}

var _ runner.Runner = (*child)(nil)

func newChild(spec *Spec, dir string, pinned *os.File, out *output, spawn *spawner, onExit func()) *child {
	c := &child{spec: spec, dir: dir, pinned: pinned, out: out, spawn: spawn, onExit: onExit,
		dead: make(chan struct{}), done: make(chan struct{})}
	c.stdoutR, c.stdoutW = io.Pipe()
	c.stderrR, c.stderrW = io.Pipe()
	return c
}

// Start runs the program. go-plugin calls it once.
func (c *child) Start(ctx context.Context) error {
	err := c.start(ctx)
	if err != nil {
		c.mu.Lock()
		c.spawnErr = err
		c.mu.Unlock()
		c.stdoutW.Close()
		c.stderrW.Close()
		close(c.dead)
		close(c.done)
	}
	return err
}

func (c *child) start(ctx context.Context) error {
	if c.pinned != nil {
		defer c.pinned.Close()
	}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	var ours []*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours)
			return fmt.Errorf("making a pipe: %w", err)
		}
		if i == 0 {
			theirs, ours = append(theirs, r), append(ours, w)
		} else {
			theirs, ours = append(theirs, w), append(ours, r)
		}
	}
	if err := c.exec(ctx, theirs); err != nil {
		closeAll(ours)
		return err
	}
	c.stdin, c.pipes = ours[0], ours[1:]
	c.readers.Go(func() { eachLine(c.pipes[0], c.stdoutLine) })
	c.readers.Go(func() { eachLine(c.pipes[1], func(line []byte) { c.out.line("stderr", line) }) })
	go c.reap()
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// exec starts the program on the spawner's thread, again when somebody still has the file open for writing.
func (c *child) exec(ctx context.Context, stdio []*os.File) error {
	for try := 1; ; try++ {
		cmd := &exec.Cmd{
			Path:  c.spec.Path,
			Args:  append([]string{c.spec.Path}, c.spec.Args...),
			Dir:   c.dir,
			Env:   append(append(c.spec.env(), c.env...), "TMPDIR="+c.dir, "PLUGIN_UNIX_SOCKET_DIR="+c.dir),
			Stdin: stdio[0], Stdout: stdio[1], Stderr: stdio[2],
			SysProcAttr: childAttributes(),
		}
		if c.pinned != nil {
			cmd.ExtraFiles = []*os.File{c.pinned}
			cmd.Path = pinnedPath(c.spec.Path, 3)
		}
		err := c.spawn.do(cmd.Start)
		switch {
		case err == nil:
			c.mu.Lock()
			c.cmd, c.started = cmd, time.Now()
			aborted := c.killed
			c.mu.Unlock()
			if aborted {
				c.kill()
			}
			return nil
		case errors.Is(err, syscall.ETXTBSY) && try < textBusy:
			select {
			case <-time.After(textBusyGap):
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		case errors.Is(err, syscall.ENOEXEC):
			return faultf("%s is not a program for this machine: %w", c.spec.Path, err)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return faultf("the program or its interpreter cannot be run: %w", err)
		default:
			return fmt.Errorf("starting the program: %w", err)
		}
	}
}

// stdoutLine hands go-plugin the handshake and nothing else. Lines before it are logged, and quoted if it never comes.
func (c *child) stdoutLine(line []byte) {
	c.mu.Lock()
	var handshake bool
	if c.version == "" {
		if m := handshakeLine.FindSubmatch(line); m != nil {
			handshake, c.version = true, string(m[1])
		} else if len(c.early) < quotedLines {
			c.early = append(c.early, string(line))
		}
	}
	c.mu.Unlock()
	if !handshake {
		c.out.line("stdout", line)
		return
	}
	_, _ = c.stdoutW.Write(append(append([]byte(nil), line...), '\n'))
}

// reap waits for the process, kills what is left of its group while the number is still ours, and collects its output.
func (c *child) reap() {
	pid := c.cmd.Process.Pid
	awaitExit(pid)
	c.mu.Lock()
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	c.mu.Unlock()
	_ = c.cmd.Wait() // the state says it all
	c.mu.Lock()
	c.reaped, c.state = true, c.cmd.ProcessState
	c.mu.Unlock()
	if c.onExit != nil {
		c.onExit()
	}
	close(c.dead)

	// A process that left the group may hold the pipes for ever.
	stop := time.AfterFunc(pipeGrace, func() { closeAll(c.pipes) })
	c.stdoutW.Close() // before the wait: a reader may be writing a handshake that nobody reads any more
	c.readers.Wait()
	stop.Stop()
	closeAll(append(c.pipes, c.stdin))
	c.stderrW.Close()
	c.out.end()
	close(c.done)
}

// kill ends the process and its group at once. It may be called at any time, from anywhere.
func (c *child) kill() {
	c.signal(syscall.SIGKILL)
}

// signal sends a signal to the group; SIGKILL ends also a stopped process.
func (c *child) signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return
	}
	c.killed = c.killed || sig == syscall.SIGKILL
	if c.cmd == nil { // start sees killed
		return
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, sig)
}

// Wait returns when the process has ended and its output was read.
func (c *child) Wait(context.Context) error {
	<-c.done
	return nil
}

// Kill implements runner.Runner.
func (c *child) Kill(context.Context) error {
	c.kill()
	return nil
}

func (c *child) Stdout() io.ReadCloser { return c.stdoutR }
func (c *child) Stderr() io.ReadCloser { return c.stderrR }
func (c *child) Name() string          { return c.spec.Path }

// ID is the process number; "" before there is one, which tells go-plugin that there is nothing to kill.
func (c *child) ID() string {
	if pid := c.pid(); pid != 0 {
		return strconv.Itoa(pid)
	}
	return ""
}

func (c *child) pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd == nil {
		return 0
	}
	return c.cmd.Process.Pid
}

// Diagnose adds nothing: startError says what went wrong.
func (c *child) Diagnose(context.Context) string { return "" }

// PluginToHost checks the address the plugin gave.
func (c *child) PluginToHost(network, addr string) (string, string, error) {
	if network != "unix" {
		return "", "", faultf("the plugin listens on %s %s: only a Unix socket in PLUGIN_UNIX_SOCKET_DIR is accepted", network, addr)
	}
	if !filepath.IsAbs(addr) {
		addr = filepath.Join(c.dir, addr)
	}
	if !strings.HasPrefix(filepath.Clean(addr), c.dir+string(filepath.Separator)) {
		return "", "", faultf("the plugin's socket %s is not in its private directory, PLUGIN_UNIX_SOCKET_DIR", addr)
	}
	c.mu.Lock()
	c.socket = addr
	c.mu.Unlock()
	return network, addr, nil
}

// HostToPlugin implements runner.Runner; both sides see the same files.
func (c *child) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// dial connects to the plugin and makes sure that it is the plugin.
func (c *child) dial(ctx context.Context, _ string) (net.Conn, error) {
	c.mu.Lock()
	socket := c.socket
	c.mu.Unlock()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connecting to the plugin: %w", err)
	}
	if err := checkPeer(conn, c.pid()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
