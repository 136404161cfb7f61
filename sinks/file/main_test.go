package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveArg {
		plugins.Serve(New(slog.Default(), ""))
		return
	}
	if path := os.Getenv(crashPathEnv); path != "" {
		writeUntilKilled(path)
	}
	goleak.VerifyTestMain(m)
}

// open returns an open sink that writes to path.
func open(t *testing.T, path string) *Sink {
	t.Helper()
	s := configured(t, path)
	if err := s.Open(t.Context()); err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

// configured returns a sink for the path that is closed when the test ends.
func configured(t *testing.T, path string) *Sink {
	t.Helper()
	s := New(slog.New(slog.DiscardHandler), "/base")
	settings, err := json.Marshal(map[string]string{"path": path})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := s.Configure(t.Context(), settings); err != nil || len(d) > 0 {
		t.Fatalf("Configure: %v, %v", d, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func records(ids ...string) []core.Record {
	batch := make([]core.Record, len(ids))
	for i, id := range ids {
		batch[i] = core.Record{ID: id, Key: "k", Keyed: true, Payload: []byte(`{}`), Deliveries: 1}
	}
	return batch
}

// send delivers one record per id and returns the outcomes.
func send(t *testing.T, s *Sink, ids ...string) []core.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	outcomes, err := s.Deliver(ctx, records(ids...))
	if err != nil {
		t.Fatalf("Deliver: %v", err)
	}
	return outcomes
}

func wantDelivered(t *testing.T, outcomes []core.Outcome) {
	t.Helper()
	for i, o := range outcomes {
		if o.Kind != core.Delivered {
			t.Fatalf("outcome %d is %+v", i, o)
		}
	}
}

// wantFailed checks the outcomes of one key's batch that failed as a whole: the first is retryable, the others, unless
// they may be there, were not attempted.
func wantFailed(t *testing.T, outcomes []core.Outcome, code string, unknown bool) {
	t.Helper()
	for i, o := range outcomes {
		want := core.Retryable
		if i > 0 && !unknown {
			want = core.NotAttempted
		}
		if o.Kind != want || o.Scope != core.ScopeSink || o.Unknown != unknown || o.Code != code || o.Message == "" {
			t.Errorf("outcome %d is %+v, want %v, code %s, unknown %v", i, o, want, code, unknown)
		}
	}
}

// lines returns the ids of the lines in the file.
func lines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	ids, err := parseIDs(data)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return ids
}

func parseIDs(data []byte) ([]string, error) {
	var ids []string
	for line := range strings.Lines(string(data)) {
		var got struct{ ID string }
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			return ids, fmt.Errorf("line %d, %.100q: %w", len(ids)+1, line, err)
		}
		if !strings.HasSuffix(line, "\n") {
			return ids, fmt.Errorf("line %d, %.100q, has no end", len(ids)+1, line)
		}
		ids = append(ids, got.ID)
	}
	return ids, nil
}

func wantLines(t *testing.T, path string, want ...string) {
	t.Helper()
	if got := lines(t, path); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s has %v, want %v", filepath.Base(path), got, want)
	}
}
