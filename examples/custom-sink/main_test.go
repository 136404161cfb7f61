package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/sinktest"
)

func TestSink(t *testing.T) { sinktest.Run(t, harness(sinktest.Build(t, "./server"))) }

func TestProgram(t *testing.T) {
	sinktest.Binary(t, sinktest.Build(t, "."), harness(sinktest.Build(t, "./server")))
}

const password = "open sesame"

// harness starts a server of its own for each check.
func harness(program sinktest.Program) func(testing.TB) sinktest.Harness {
	return func(t testing.TB) sinktest.Harness {
		p := &process{program: program.Path, address: "127.0.0.1:0", file: filepath.Join(t.TempDir(), "arrived")}
		p.start(t)
		t.Cleanup(p.kill)
		return sinktest.Harness{
			Sink:     newSink(),
			Settings: fmt.Appendf(nil, `{"address":%q,"token":%q}`, p.address, password),
			Secrets:  []string{password},
			BadSettings: []sinktest.BadSettings{
				{Settings: `{"token":"hunter2"}`, Pointer: "/address", Secret: "hunter2"},
				{Settings: `{"address":"127.0.0.1:1"}`, Pointer: "/token"},
				{Settings: `{"address":"127.0.0.1:1","token":12345}`, Pointer: "/token", Secret: "12345"},
			},
			Received: func(t testing.TB) []core.Record { return readBack(t, p.file) },
			// The line has no room for the rest of a record, and does not tell an empty key from none.
			Expect: func(r core.Record) core.Record {
				return core.Record{ID: r.ID, Key: r.Key, Keyed: r.Key != "", Type: r.Type, Payload: r.Payload, Deliveries: r.Deliveries}
			},
			Refuse: func(r core.Record) core.Record { r.Type = "refuse"; return r },
			Outage: func(t testing.TB) func() { p.kill(); return func() { p.start(t) } },
			Hang:   func(t testing.TB) func() { p.freeze(t); return func() { p.signal(t, syscall.SIGCONT) } },
		}
	}
}

// process is a server, the real one, which a test may kill, stop and start again.
type process struct {
	program, address, file string
	cmd                    *exec.Cmd
}

// start waits until the server listens: at first on any port, later on the same one, which somebody else may have for a
// moment.
func (p *process) start(t testing.TB) {
	t.Helper()
	var stderr bytes.Buffer
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		stderr.Reset()
		p.cmd = exec.Command(p.program, "-listen", p.address, "-file", p.file, "-refuse", "refuse")
		p.cmd.Env, p.cmd.Stderr = []string{"LINE_TOKEN=" + password}, &stderr
		stdout, err := p.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err == nil {
			p.address = strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
			return
		}
		p.kill()
	}
	t.Fatalf("the server does not start: %s", &stderr)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// freeze stops the process: the kernel goes on taking connections and bytes for it.
func (p *process) freeze(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the server is not stopped: %v, %v", status, err)
	}
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// readBack reads the server's file.
func readBack(t testing.TB, path string) []core.Record {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var records []core.Record
	for line := range strings.Lines(string(data)) {
		number, rest, _ := strings.Cut(line, " ")
		deliveries, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("line %.100q: %v", line, err)
		}
		var texts [4]string
		for i := range texts {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				t.Fatalf("line %.100q: %v", line, err)
			}
			texts[i], _ = strconv.Unquote(quoted)
			rest = rest[len(quoted)+1:]
		}
		records = append(records, core.Record{
			ID: texts[0], Key: texts[1], Keyed: texts[1] != "", Type: texts[2], Payload: []byte(texts[3]), Deliveries: deliveries,
		})
	}
	return records
}
