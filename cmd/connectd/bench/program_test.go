//go:build linux

package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for something that must happen.
const patience = 60 * time.Second

// programs are the files that are run.
type programs struct {
	connectd  string
	plugins   string // a directory with the null sink
	discard   string
	receiver  string
	fakeKafka string
}

// buildPrograms builds connectd as `make build` does, and links this binary to its other names.
func buildPrograms(b *testing.B) programs {
	dir := b.TempDir()
	p := programs{connectd: filepath.Join(dir, "connectd"), plugins: dir, discard: filepath.Join(dir, discardProgram),
		receiver: filepath.Join(dir, receiverProgram), fakeKafka: filepath.Join(dir, fakeKafkaProgram)}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", p.connectd, "github.com/connectd/connectd/cmd/connectd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("building connectd: %v\n%s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{nullProgram, discardProgram, receiverProgram, fakeKafkaProgram} {
		if err := copyFile(self, filepath.Join(dir, name), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	return p
}

// copyFile copies and waits for the disk, so that the measurement after it has the disk for itself.
func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Sync()
}

// setup is a directory with a configuration, made for one daemon.
type setup struct {
	programs
	dir, http string
}

// newSetup writes a configuration with the sink, in YAML, and the connector's other sections, for a SQLite file. "DIR" is
// the directory.
func newSetup(b *testing.B, p programs, sink, more string) setup {
	return newSetupOn(b, p, "{plugin: sqlite, path: DIR/outbox.db, table: outbox}", sink, more)
}

// newSetupOn is newSetup for any source, in YAML.
func newSetupOn(b *testing.B, p programs, source, sink, more string) setup {
	return newSetupOf(b, p, connectorYAML("bench", source, sink, more))
}

// connectorYAML is one connector of a configuration.
func connectorYAML(name, source, sink, more string) string {
	return fmt.Sprintf("  %s:\n    source: %s\n    sink: %s\n    %s\n", name, source, sink, more)
}

// newSetupOf is newSetup for any connectors.
func newSetupOf(b *testing.B, p programs, connectors string) setup {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := setup{programs: p, dir: b.TempDir(), http: l.Addr().String()}
	l.Close()
	text := fmt.Sprintf("daemon: {http: %q, plugin_dir: %q}\nconnectors:\n%s", s.http, p.plugins, connectors)
	if err := os.WriteFile(s.config(), []byte(strings.ReplaceAll(text, "DIR", s.dir)), 0o644); err != nil {
		b.Fatal(err)
	}
	return s
}

// The sinks as a configuration names them.
const (
	fileSinkYAML = "{plugin: file, path: DIR/out.jsonl}"
	nullSinkYAML = "{plugin: \"null\"}"
	receiptsYAML = "{plugin: \"null\", receipts: DIR/receipts}"
)

func (s setup) config() string   { return filepath.Join(s.dir, "connectd.yaml") }
func (s setup) database() string { return filepath.Join(s.dir, "outbox.db") }
func (s setup) output() string   { return filepath.Join(s.dir, "out.jsonl") }
func (s setup) receipts() string { return filepath.Join(s.dir, "receipts") }

// init runs `connectd init`.
func (s setup) init(b *testing.B, flags ...string) { s.command(b, "init", flags...) }

// command runs a command and returns how long it took, its start included.
func (s setup) command(b *testing.B, name string, args ...string) time.Duration {
	b.Helper()
	took, err := s.tryCommand(b, name, args...)
	if err != nil {
		b.Fatal(err)
	}
	return took
}

// tryCommand is command for what may fail.
func (s setup) tryCommand(b *testing.B, name string, args ...string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	began := time.Now()
	command := exec.CommandContext(ctx, s.connectd, append(append(strings.Fields(name), "-c", s.config()), args...)...)
	out, err := command.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("connectd %s: %w\n%s", name, err, out)
	}
	return time.Since(began), nil
}

// daemon is `connectd run`.
type daemon struct {
	b       *testing.B
	cmd     *exec.Cmd
	started time.Time // just before exec
	ended   chan struct{}

	mu      sync.Mutex
	lines   []logLine
	changed chan struct{} // closed and replaced with each line, and when there are no more
}

type logLine struct {
	at   time.Time
	text string
}

// run starts the daemon.
func (s setup) run(b *testing.B) *daemon {
	d := &daemon{b: b, cmd: exec.Command(s.connectd, "run", "-c", s.config()), ended: make(chan struct{}), changed: make(chan struct{})}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	d.started = time.Now()
	if err := d.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			d.note(logLine{time.Now(), lines.Text()})
		}
		_ = d.cmd.Wait()
		close(d.ended)
	}()
	b.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-d.ended
	})
	return d
}

func (d *daemon) note(l logLine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, l)
	close(d.changed)
	d.changed = make(chan struct{})
}

// await returns the first line of the log, from the given one on, that matches, its parts and the line's number.
func (d *daemon) await(pattern *regexp.Regexp, from int) (logLine, []string, int) {
	d.b.Helper()
	timeout := time.After(patience)
	for {
		d.mu.Lock()
		lines, changed := d.lines, d.changed
		d.mu.Unlock()
		for ; from < len(lines); from++ {
			if m := pattern.FindStringSubmatch(lines[from].text); m != nil {
				return lines[from], m, from
			}
		}
		select {
		case <-changed:
		case <-d.ended:
			d.b.Fatalf("the daemon has ended, no line matches %s:\n%s", pattern, d.log())
		case <-timeout:
			d.b.Fatalf("no line matches %s:\n%s", pattern, d.log())
		}
	}
}

func (d *daemon) log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var text strings.Builder
	for _, l := range d.lines {
		fmt.Fprintln(&text, l.text)
	}
	return text.String()
}

var (
	connectorRuns = regexp.MustCompile(`msg="connector running"`)
	sinkStarted   = regexp.MustCompile(`msg="sink process started".* pid=(\d+)`)
	sinkRestarts  = regexp.MustCompile(`msg="the sink's process is started again".* after=(\S+)`)
)

// sinkPID is the pid of the sink's first process.
func (d *daemon) sinkPID() int {
	d.b.Helper()
	_, m, _ := d.await(sinkStarted, 0)
	var pid int
	if _, err := fmt.Sscan(m[1], &pid); err != nil {
		d.b.Fatal(err)
	}
	return pid
}

// stop lets the daemon drain and end.
func (d *daemon) stop() {
	d.b.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.b.Fatal(err)
	}
	select {
	case <-d.ended:
	case <-time.After(patience):
		d.b.Fatalf("the daemon does not end:\n%s", d.log())
	}
	if code := d.cmd.ProcessState.ExitCode(); code != 0 {
		d.b.Fatalf("the daemon's exit code is %d:\n%s", code, d.log())
	}
}

// until asks again and again, with pauses, until the answer is yes.
func until(b *testing.B, what string, pause time.Duration, ok func() bool) {
	b.Helper()
	untilWithin(b, patience, what, pause, ok)
}

// untilWithin is until for what may take long.
func untilWithin(b *testing.B, limit time.Duration, what string, pause time.Duration, ok func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			b.Fatalf("%s: not within %v", what, limit)
		case <-time.After(pause):
		}
	}
}
