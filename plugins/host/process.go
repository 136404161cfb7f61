package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins"
)

// Bounds for ending a process.
const (
	reapTimeout = 2 * time.Second // for the kernel to end it after SIGKILL
	deathNotice = 2 * time.Second // between the end of a process's connection and its own, on a loaded machine
	askAgain    = 20 * time.Millisecond
)

// process is one start of a plugin: its directory, its child process and the connection to it. It is used once and
// thrown away; nothing of it outlives stop.
type process struct {
	child       *child
	dir         *startDir
	log         *slog.Logger
	client      *plugin.Client
	sink        *plugins.Client
	health      grpc_health_v1.HealthClient
	description core.Description

	// answers counts what the process answered, which proves that it lives; batches is those of Deliver.
	answers, batches atomic.Int64
	// blameless, if not empty, is why the host itself ends the process, for a reason that is no record's fault.
	blameless atomic.Pointer[string]
	// broken is signalled when a call found the process alive and unreachable.
	broken chan struct{}
}

// startProcess starts the program and returns when it has described itself. The error says what went wrong, with what
// the process printed; it is a *fault when trying again is of no use. onExit is called when the process ends, before
// anybody learns of it.
func startProcess(ctx context.Context, spec *Spec, spawn *spawner, log *slog.Logger, onExit func()) (*process, error) {
	ctx, cancel := context.WithTimeout(ctx, spec.startTimeout())
	defer cancel()
	if err := checkProgram(spec.Path); err != nil {
		return nil, &fault{err}
	}
	if _, err := sweep(spec.runtimeDir()); err != nil {
		log.Warn("cannot clean up after a dead daemon", "error", err)
	}
	dir, err := newStartDir(spec.runtimeDir())
	if err != nil {
		return nil, err
	}
	var pinned *os.File
	if spec.SHA256 != "" {
		if pinned, err = openPinned(spec.Path, spec.SHA256); err != nil {
			return nil, errors.Join(err, dir.remove())
		}
	}
	p := &process{dir: dir, log: log, broken: make(chan struct{}, 1)}
	p.child = newChild(spec, dir.path, pinned, &output{log: log}, spawn, onExit)
	if err := p.connect(ctx, spec); err != nil {
		ended := p.stop(0)
		return nil, p.startError(ctx, spec, err, ended)
	}
	return p, nil
}

// connect goes through the handshake to the first answer. go-plugin takes no context for it, so the process is killed
// when ctx is done, which ends each of its waits.
func (p *process) connect(ctx context.Context, spec *Spec) error {
	p.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  plugins.Handshake(),
		VersionedPlugins: map[int]plugin.PluginSet{plugins.ProtocolVersion: {plugins.PluginName: &plugins.Plugin{}}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		SkipHostEnv:      true,
		StartTimeout:     spec.startTimeout() + time.Second, // ours comes first
		Logger:           &hclogger{log: p.log},
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: p.dir.path},
		GRPCDialOptions:  append(plugins.DialOptions(), grpc.WithContextDialer(p.child.dial)),
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			p.child.env = cmd.Env
			return p.child, nil
		},
	})
	result := make(chan error, 1)
	go func() { result <- p.handshake(ctx) }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	p.child.kill()
	select {
	case <-result:
	case <-time.After(reapTimeout):
		p.log.Error("a plugin that does not start cannot be ended either", "pid", p.child.pid())
	}
	return ctx.Err()
}

func (p *process) handshake(ctx context.Context) error {
	protocol, err := p.client.Client()
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	raw, err := protocol.Dispense(plugins.PluginName)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	gc, ok := protocol.(*plugin.GRPCClient)
	if !ok {
		return fmt.Errorf("handshake: no gRPC connection but %T", protocol)
	}
	p.sink = raw.(*plugins.Client)
	p.health = grpc_health_v1.NewHealthClient(gc.Conn)
	if p.description, err = p.sink.Describe(ctx); err == nil && p.description.Name == "" {
		return faultf("describe: the sink has no name")
	}
	return err
}

// startError is the whole story of a failed start, in one line.
func (p *process) startError(ctx context.Context, spec *Spec, err error, ended bool) error {
	c := p.child
	c.mu.Lock()
	early, version, spawnErr := c.early, c.version, c.spawnErr
	c.mu.Unlock()
	var story strings.Builder
	var fatal bool
	switch {
	case spawnErr != nil:
		var f *fault
		fatal = errors.As(spawnErr, &f)
		story.WriteString(spawnErr.Error())
	case version != "" && version != fmt.Sprint(plugins.ProtocolVersion):
		fatal = true
		fmt.Fprintf(&story, "the plugin speaks version %s of the sink protocol, this connectd speaks %d", version, plugins.ProtocolVersion)
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && version == "":
		fmt.Fprintf(&story, "the plugin did not answer the handshake within start_timeout (%v)", spec.startTimeout())
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		fmt.Fprintf(&story, "the plugin did not describe itself within start_timeout (%v)", spec.startTimeout())
	case ctx.Err() != nil:
		return ctx.Err()
	case ended && !c.wasKilled():
		fmt.Fprintf(&story, "the plugin ended at its start: %s", c.exit())
	default:
		var f *fault
		fatal = errors.As(err, &f)
		story.WriteString(err.Error())
	}
	if len(early) > 0 && version == "" {
		fmt.Fprintf(&story, "; instead of the handshake it printed %s", quoteLines(early))
	}
	if panicked, last := c.out.last(quotedLines); panicked != "" {
		fmt.Fprintf(&story, "; it said %s", quoteLines([]string{panicked}))
	} else if len(last) > 0 && len(early) == 0 {
		fmt.Fprintf(&story, "; its last words: %s", quoteLines(last))
	}
	if fatal {
		return faultf("starting %s: %s", spec.Path, story.String())
	}
	return fmt.Errorf("starting %s: %s", spec.Path, story.String())
}

// stop ends the process: it is asked, and killed with its group when it has not ended after grace. It returns within
// grace and a few seconds, whatever state the process is in, and says whether the process had ended by itself before.
func (p *process) stop(grace time.Duration) (ended bool) {
	select {
	case <-p.child.dead:
		ended = true
	default:
	}
	if grace == 0 && !ended {
		// One that has just died by itself should be found to have.
		select {
		case <-p.child.dead:
			ended = true
		case <-time.After(2 * askAgain):
		}
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		p.client.Kill() // may block for as long as the process lives
	}()
	select {
	case <-finished:
	case <-time.After(grace):
	}
	p.child.kill()
	deadline := time.After(reapTimeout)
	for _, end := range []<-chan struct{}{p.child.over(), finished} {
		select {
		case <-end:
		case <-deadline: // its directory goes all the same: it has been killed, however long that takes
			p.log.Error("a plugin's process cannot be ended, giving it up", "pid", p.child.pid())
		}
	}
	if err := p.dir.remove(); err != nil {
		p.log.Warn("a plugin's directory is left behind", "error", err)
	}
	return ended
}

// over is closed when nothing is left of the process, or nothing has ever been.
func (c *child) over() <-chan struct{} {
	if c.ID() != "" {
		return c.done
	}
	never := make(chan struct{})
	close(never)
	return never
}

// alive says whether the process still runs.
func (p *process) alive() bool {
	select {
	case <-p.child.dead:
		return false
	default:
		return true
	}
}

// condemn has the process restarted, for a reason that is not the records' fault.
func (p *process) condemn(why string) {
	p.blameless.CompareAndSwap(nil, &why)
	select {
	case p.broken <- struct{}{}:
	default:
	}
}

// brokenError is why the process was condemned.
func (p *process) brokenError() error {
	return fmt.Errorf("the sink's process was ended, %s", *p.blameless.Load())
}

// explain finds out what a failed call means, mostly whether the process died of it.
func (p *process) explain(ctx context.Context, err error) error {
	unavailable := plugins.Unavailable(err)
	if unavailable {
		p.fate(ctx)
	}
	switch why := p.blameless.Load(); {
	case why != nil:
		return fmt.Errorf("the plugin was ended, %s: %w", *why, err)
	case !p.alive():
		return fmt.Errorf("%w: %s: %w", core.ErrSinkDied, p.child.exit(), err)
	default:
		if !unavailable && ctx.Err() == nil {
			p.answers.Add(1)
		}
		return err
	}
}

// fate returns when it is clear what became of a process that a call could not reach: it has ended, which is often seen
// a moment after its connection has; or it answers a probe, so that the word came from the sink itself; or neither, and
// it is condemned.
func (p *process) fate(ctx context.Context) {
	limit := time.NewTimer(deathNotice)
	defer limit.Stop()
	for p.alive() {
		if answered, _ := p.ask(ctx, deathNotice); answered {
			return
		}
		select {
		case <-p.child.dead:
		case <-time.After(askAgain):
		case <-ctx.Done():
			return
		case <-limit.C:
			p.condemn("because it could not be reached any more")
			return
		}
	}
}

// ask makes one liveness call and says whether it was answered, or could not even reach the process. Any answer will
// do, also that of a plugin without the health service.
func (p *process) ask(ctx context.Context, limit time.Duration) (answered, unreachable bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := p.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: plugin.GRPCServiceName})
	switch status.Code(err) {
	case codes.Unavailable:
		return false, true
	case codes.DeadlineExceeded, codes.Canceled:
		return false, false
	default:
		p.answers.Add(1)
		return true, false
	}
}

// exit describes how the process ended: "exit status 2", "signal: killed".
func (c *child) exit() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == nil {
		return "not ended"
	}
	text := c.state.String()
	if ws, ok := c.state.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL && !c.killed {
		text += " (by somebody else: an operator, or the system for want of memory)"
	}
	return text
}

func (c *child) wasKilled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}
