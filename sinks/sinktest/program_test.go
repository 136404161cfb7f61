package sinktest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins"
	"github.com/connectd/connectd/sinks/file"
)

// TestMain is also the programs that the tests of Binary start: the file sink with a fault, named by the one argument.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && strings.HasPrefix(os.Args[1], "serve-") {
		serve(os.Args[1])
		return
	}
	os.Exit(m.Run())
}

func serve(fault string) {
	good := file.New(slog.Default(), "")
	s := &twisted{Sink: good}
	switch fault {
	case "serve-good":
	case "serve-noisy":
		s.deliver = func(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
			fmt.Println("delivering", len(batch))
			fmt.Fprintf(os.Stderr, "no line end %s", strings.Repeat("x", 100_000))
			_, _ = syscall.Write(1, []byte("1|1|unix|/tmp/nowhere|grpc|\n"+strings.Repeat("y", 100_000)))
			_, _ = syscall.Write(2, []byte{0, 0xff, '\n'})
			return good.Deliver(ctx, batch)
		}
	case "serve-until-signal":
		s.open = func(ctx context.Context) error {
			signal.Reset(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
			return good.Open(ctx)
		}
	case "serve-write-behind":
		s.deliver = func(_ context.Context, batch []core.Record) ([]core.Outcome, error) {
			batch = cloneBatch(batch)
			time.AfterFunc(20*time.Millisecond, func() { _, _ = good.Deliver(context.Background(), batch) })
			return delivered(len(batch)), nil
		}
	case "serve-without-daemon":
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		defer w.Close()
		os.Stdin = r
	case "serve-silence":
		if os.Getenv(plugins.Handshake().MagicCookieKey) == "" {
			return
		}
	}
	plugins.Serve(s)
}

func served(name string) Program {
	return Program{Path: os.Args[0], Args: []string{name}, Env: []string{"GORACE=atexit_sleep_ms=0 halt_on_error=1"}}
}

// fileHarness reads back no more than ids, which is enough for the checks of processes.
func fileHarness(t testing.TB) Harness {
	path := filepath.Join(t.TempDir(), "out")
	return Harness{
		Settings: fmt.Appendf(nil, `{"path":%q}`, path),
		Received: func(t testing.TB) []core.Record {
			data, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			var records []core.Record
			for line := range bytes.Lines(data) {
				var r core.Record
				if err := json.Unmarshal(line, &struct{ ID *string }{&r.ID}); err != nil {
					t.Fatalf("line %d, %.100q: %v", len(records)+1, line, err)
				}
				records = append(records, r)
			}
			return records
		},
	}
}

func TestBrokenProgramsAreFound(t *testing.T) {
	for _, b := range []struct{ program, check, says string }{
		{"serve-until-signal", "process/signals", "did not survive"},
		{"serve-write-behind", "process/killed", "not at the destination"},
		{"serve-without-daemon", "process/daemon gone", "lives on"},
		{"serve-silence", "process/by hand", "should explain itself"},
	} {
		t.Run(b.program, func(t *testing.T) {
			p := served(b.program)
			i := slices.IndexFunc(processChecks(), func(c processCheck) bool { return c.name == b.check })
			c := check{name: b.check, run: func(c *trial) { processChecks()[i].run(&process{c, p}) }}
			r := trialRun(t, c, func(t testing.TB) Harness { return p.harness(t, fileHarness(t)) })
			if !r.Failed() || !strings.Contains(r.report(), b.says) {
				t.Errorf("check %q does not say %q of this program; failed: %v, it says:\n%s", b.check, b.says, r.Failed(), r.report())
			}
		})
	}
}

// TestNoisyProgram has a sink that prints on every descriptor it can find, handshakes too.
func TestNoisyProgram(t *testing.T) {
	p := served("serve-noisy")
	for _, c := range checks() {
		if c.name != "batch/500" && c.name != "order/concurrent" && c.name != "life/close twice" {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.run(newTrial(t, p.harness(t, fileHarness(t)))) })
	}
}

// TestBuild compiles a command.
func TestBuild(t *testing.T) {
	p := Build(t, "cmd/test2json")
	if info, err := os.Stat(p.Path); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("built %v, %v", info, err)
	}
}
