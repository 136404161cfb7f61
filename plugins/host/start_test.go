package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// check runs Check on a torture mode and returns the error's text.
func checkFails(t *testing.T, spec Spec) error {
	t.Helper()
	_, _, err := Check(within(t, 15*time.Second), spec, (&logBuffer{}).logger())
	if err == nil {
		t.Fatal("no error")
	}
	return err
}

// The first cause, with the versions found, and not what it led to: https://github.com/ConduitIO/conduit/issues/1852
func TestStartFailuresSayWhatHappened(t *testing.T) {
	short := func(s Spec) Spec { s.StartTimeout = 400 * time.Millisecond; return s }
	for _, c := range []struct {
		name  string
		spec  Spec
		fatal bool
		words []string
	}{
		{"prints and hangs", short(tortureSpec(t, "prints-then-hangs")), false,
			[]string{"did not answer the handshake", "400ms", `instead of the handshake it printed "usage: please configure me"`}},
		{"hangs", short(tortureSpec(t, "hangs-at-start")), false, []string{"did not answer the handshake within start_timeout (400ms)"}},
		{"exits", tortureSpec(t, "exits-at-start"), false, []string{"ended at its start", "exit status 3", "no licence found"}},
		{"panics", tortureSpec(t, "panics-at-start"), false, []string{"ended at its start", "exit status 2", "panic: bad build"}},
		{"other version", tortureSpec(t, "other-version"), true, []string{"speaks version 7", "this connectd speaks 1"}},
		{"tcp", tortureSpec(t, "tcp"), true, []string{"only a Unix socket"}},
		{"foreign socket", tortureSpec(t, "foreign-socket"), true, []string{"/tmp/elsewhere", "not in its private directory"}},
		{"deaf", short(tortureSpec(t, "deaf")), false, []string{"did not describe itself within start_timeout"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Now()
			err := checkFails(t, c.spec)
			contains(t, err.Error(), append(c.words, c.spec.Path)...)
			var f *fault
			if errors.As(err, &f) != c.fatal {
				t.Errorf("is a fault: %v, expected %v", !c.fatal, c.fatal)
			}
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			left, _ := os.ReadDir(c.spec.RuntimeDir)
			if len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestStartRefusesTheProgram(t *testing.T) {
	dir := shortDir(t)
	script := func(name, text string, mode os.FileMode) Spec {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return Spec{Path: path, RuntimeDir: shortDir(t)}
	}
	pinned := tortureSpec(t, "plain")
	pinned.SHA256 = strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		spec  Spec
		words string
	}{
		"missing":        {Spec{Path: filepath.Join(dir, "nothing"), RuntimeDir: shortDir(t)}, "there is no file " + dir},
		"relative":       {Spec{Path: "./plugin", RuntimeDir: shortDir(t)}, `"./plugin", is not absolute`},
		"not executable": {script("plain", "#!/bin/sh\n", 0o600), "is not executable"},
		"other machine":  {script("alien", "\x7fELF rubbish", 0o700), "not a program for this machine"},
		"no interpreter": {script("orphan", "#!/nonexistent/python\n", 0o700), "its interpreter cannot be run"},
		"wrong checksum": {pinned, "process.sha256 wants 0000"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkFails(t, c.spec)
			contains(t, err.Error(), c.words)
			var f *fault
			if !errors.As(err, &f) {
				t.Error("not a fault, so it would be tried again and again")
			}
		})
	}
}

func TestPrintingBeforeTheHandshakeIsLoggedAndDropped(t *testing.T) {
	s, logs := startReady(t, tortureSpec(t, "prints-then-serves"), defaultTiming())
	if _, err := s.Deliver(within(t, 5*time.Second), batchOf(3)); err != nil {
		t.Fatal(err)
	}
	contains(t, logs.String(), "hello from an init function")
}

// TestRunsTheVeryFileItHashed swaps the program between the check and the start, which the running copy must survive.
func TestRunsTheVeryFileItHashed(t *testing.T) {
	spec := tortureSpec(t, "plain")
	program, err := os.ReadFile(spec.Path)
	if err != nil {
		t.Fatal(err)
	}
	spec.Path = filepath.Join(shortDir(t), "connectd-sink-copy")
	if err := os.WriteFile(spec.Path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	pinned, err := openPinned(spec.Path, hex.EncodeToString(sum[:]))
	if err != nil {
		t.Fatal(err)
	}
	swapped := spec.Path + ".new"
	if err := os.WriteFile(swapped, []byte("#!/bin/sh\necho evil; exit 9\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(swapped, spec.Path); err != nil {
		t.Fatal(err)
	}
	spawn := newSpawner()
	defer spawn.close()
	dir, err := newStartDir(spec.RuntimeDir)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{dir: dir, log: (&logBuffer{}).logger(), broken: make(chan struct{}, 1)}
	p.child = newChild(&spec, dir.path, pinned, &output{log: p.log}, spawn, nil)
	defer p.stop(time.Second)
	if err := p.connect(within(t, 10*time.Second), &spec); err != nil {
		t.Fatal(err)
	}
	if p.description.Name != "torture" {
		t.Errorf("description %+v", p.description)
	}
}

// TestStartsAProgramThatIsBeingWritten: the system refuses to run a file that is open for writing.
func TestStartsAProgramThatIsBeingWritten(t *testing.T) {
	spec := tortureSpec(t, "plain")
	source, err := os.Open(spec.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	spec.Path = filepath.Join(shortDir(t), "connectd-sink-copy")
	target, err := os.OpenFile(spec.Path, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(target, source); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(80*time.Millisecond, func() { _ = target.Close() })
	if _, _, err := Check(within(t, 10*time.Second), spec, (&logBuffer{}).logger()); err != nil {
		t.Fatal(err)
	}
}

func TestThePluginSeesNothingOfTheDaemon(t *testing.T) {
	t.Setenv("ORDERS_DSN", "postgres://secret")
	t.Setenv("TZ", "UTC")
	t.Setenv("WANTED", "yes")
	spec := tortureSpec(t, "environment")
	spec.Env = append(spec.Env, "WANTED", "GIVEN=1", "NOT_SET_ANYWHERE")
	spec.Settings = []byte(`{"password":"hunter2"}`)
	logs := &logBuffer{}
	d, _, err := Check(within(t, 10*time.Second), spec, logs.logger())
	if err != nil {
		t.Fatal(err)
	}
	parts := bytes.SplitN(d.Schema, []byte("\n"), 3)
	allowed := map[string]bool{"GIVEN": true, "WANTED": true, "GORACE": true, "TMPDIR": true, "CONNECTD_SINK_PLUGIN": true, "CONNECTD_CONNECTOR": true}
	for _, name := range passedOn {
		allowed[name] = true
	}
	seen := map[string]bool{}
	for _, name := range strings.Fields(string(parts[0])) {
		seen[name] = true
		if !allowed[name] && !strings.HasPrefix(name, "PLUGIN_") {
			t.Errorf("the plugin sees %s", name)
		}
	}
	if !seen["WANTED"] || !seen["GIVEN"] || !seen["TZ"] || !seen["CONNECTD_CONNECTOR"] {
		t.Errorf("the plugin sees only %s", parts[0])
	}
	if !strings.HasPrefix(string(parts[1]), spec.RuntimeDir+"/"+usedName) {
		t.Errorf("working directory %s", parts[1])
	}
	for _, text := range []string{string(d.Schema), logs.String()} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "secret") {
			t.Errorf("a secret is in %s", text)
		}
	}
}

func TestCheckAsksTheSink(t *testing.T) {
	spec := tortureSpec(t, "plain")
	spec.Settings = []byte(`{"bad":1}`)
	d, diagnostics, err := Check(within(t, 10*time.Second), spec, (&logBuffer{}).logger())
	if err != nil {
		t.Fatal(err)
	}
	want := []core.Diagnostic{{Pointer: "/topic", Message: "is missing"}, {Message: "old style", Warning: true}}
	if d.Name != "torture" || len(diagnostics) != 2 || diagnostics[0] != want[0] || diagnostics[1] != want[1] {
		t.Errorf("%+v %+v", d, diagnostics)
	}
}
