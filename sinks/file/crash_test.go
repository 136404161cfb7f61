package file

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
)

const crashPathEnv = "CONNECTD_TEST_FILE_SINK_PATH"

// writeUntilKilled writes batches for ever and prints the number of the last delivered one.
func writeUntilKilled(path string) {
	s := New(slog.New(slog.DiscardHandler), "/base")
	ctx := context.Background()
	if d, err := s.Configure(ctx, []byte(`{"path":"`+path+`"}`)); err != nil || len(d) > 0 {
		panic(fmt.Sprint(d, err))
	}
	if err := s.Open(ctx); err != nil {
		panic(err)
	}
	pad := `"` + strings.Repeat("x", 20_000) + `"`
	run := fmt.Sprint(os.Getpid())
	for n := 0; ; n++ {
		batch := records(fmt.Sprintf("%s-%d-a", run, n), fmt.Sprintf("%s-%d-b", run, n))
		batch[0].Payload = []byte(pad)
		outcomes, err := s.Deliver(ctx, batch)
		if err != nil || outcomes[0].Kind != core.Delivered || outcomes[1].Kind != core.Delivered {
			panic(fmt.Sprint(outcomes, err))
		}
		fmt.Println(batch[0].ID)
		fmt.Println(batch[1].ID)
	}
}

// TestKill9 kills a writing process at random moments: what it said was delivered is in the file, once, and the file is
// whole after the next open.
func TestKill9(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	delivered := map[string]bool{}
	for round := range 8 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashPathEnv+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		scanner := bufio.NewScanner(out)
		for n := 0; scanner.Scan(); n++ {
			delivered[scanner.Text()] = true
			if n == 5*round {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
	}
	if err := open(t, path).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, id := range lines(t, path) {
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
	}
	for id := range delivered {
		if !seen[id] {
			t.Errorf("%s was delivered and is not there", id)
		}
	}
	if len(delivered) < 8 {
		t.Errorf("only %d deliveries, the test shows nothing", len(delivered))
	}
}
