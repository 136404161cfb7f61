package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins"
	"github.com/connectd/connectd/plugins/host"
)

// tortureMode is the variable that says how the torture plugin misbehaves at its start.
const tortureMode = "TORTURE_MODE"

// installTorture makes the directory's plugins/ hold connectd-sink-torture, which is this test binary.
func installTorture(t *testing.T, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "plugins"), 0o755); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "plugins", host.Prefix+"torture")
	if os.Link(self, to) == nil {
		return
	}
	in, err := os.Open(self) // another file system
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// tortureConfig has the torture plugin as its sink, with these settings and delivery.
func tortureConfig(settings, delivery string) string {
	return fmt.Sprintf(`daemon: {plugin_dir: ./plugins}
connectors:
  orders:
    source: {plugin: sqlite, path: ./shop.db, table: outbox, poll: {min: 5ms, max: 50ms}}
    sink: {plugin: torture%s}
    process: {start_timeout: 2s, env: [%s]}
    delivery: {lease: 2s, retry: {initial: 10ms, max: 100ms}%s}
`, settings, tortureMode, delivery)
}

// serveTorture is the torture plugin's main.
func serveTorture() {
	switch os.Getenv(tortureMode) {
	case "prints":
		fmt.Println("hello, I am a plugin")
		time.Sleep(time.Hour)
	case "greets":
		fmt.Println("good \"morning\" level=ERROR")
		plugins.Serve(&torture{})
	case "version":
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig:  plugins.Handshake(),
			VersionedPlugins: map[int]plugin.PluginSet{99: {plugins.PluginName: &plugins.Plugin{Sink: &torture{}}}},
			GRPCServer:       plugin.DefaultGRPCServer,
		})
	case "hangs":
		time.Sleep(time.Hour)
	case "crashes":
		fmt.Fprintln(os.Stderr, "no licence found")
		os.Exit(3)
	default:
		plugins.Serve(&torture{})
	}
}

// torture is a sink that writes ids to a file and misbehaves on records of certain types.
type torture struct {
	mu     sync.Mutex
	config struct {
		Path     string `json:"path"`
		Password string `json:"password"`
		Pause    string `json:"pause"` // before each answer
		Refuse   bool   `json:"refuse"`
	}
	pause time.Duration
}

func (s *torture) Describe(context.Context) (core.Description, error) {
	return core.Description{Name: "torture", Version: "0.1", Schema: []byte(`{"type":"object"}`)}, nil
}

func (s *torture) Configure(_ context.Context, settings []byte) ([]core.Diagnostic, error) {
	if err := json.Unmarshal(settings, &s.config); err != nil {
		return nil, err
	}
	s.pause, _ = time.ParseDuration(s.config.Pause)
	if s.config.Refuse {
		return []core.Diagnostic{{Pointer: "/refuse", Message: "must not be true"}}, nil
	}
	return nil, nil
}

func (s *torture) Open(context.Context) error { return nil }

func (s *torture) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	outcomes := make([]core.Outcome, len(batch))
	stopped := map[string]bool{} // keys with a record that was not delivered
	for i, r := range batch {
		if r.Keyed && stopped[r.Key] {
			outcomes[i].Kind = core.NotAttempted
			continue
		}
		outcomes[i].Kind = core.Delivered
		switch r.Type {
		case "crash":
			os.Exit(9)
		case "parent":
			_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
			time.Sleep(time.Hour)
		case "panic":
			panic("no branch for this record")
		case "hang":
			time.Sleep(time.Hour)
		case "count":
			return outcomes[:i], nil
		case "error":
			return nil, errors.New("no template for this record")
		case "refuse":
			outcomes[i] = core.Outcome{Kind: core.Permanent, Code: "invalid", Message: "the destination will never take it"}
			stopped[r.Key] = true
			continue
		case "later":
			outcomes[i] = core.Outcome{Kind: core.Retryable, Code: "http_500", Message: "out of order today", RetryAfter: time.Hour}
			stopped[r.Key] = true
			continue
		case "slow":
			select {
			case <-time.After(20 * time.Second):
			case <-ctx.Done():
			}
		case "shout":
			fmt.Printf("%s", bytes.Repeat([]byte("x"), 1<<20))
		}
		if err := s.append(r); err != nil {
			return nil, err
		}
	}
	const step = 10 * time.Millisecond // so that a process that was stopped has the rest of its pause when it wakes
	for left := s.pause; left > 0 && ctx.Err() == nil; left -= step {
		select {
		case <-time.After(min(left, step)):
		case <-ctx.Done():
		}
	}
	return outcomes, nil
}

// append writes the record like the file sink, as far as these tests read it.
func (s *torture) append(r core.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := os.OpenFile(s.config.Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	line, err := json.Marshal(sent{ID: r.ID, Key: &r.Key, Deliveries: r.Deliveries, PossibleDuplicate: r.PossibleDuplicate()})
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return err
}

func (s *torture) Health(context.Context) error { return nil }
func (s *torture) Close(context.Context) error  { return nil }
