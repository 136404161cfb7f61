package file

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	pad := strings.Repeat("x", 1<<20)
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
	torn := 0
	for round := range 10 {
		runAndKill(t, path, 2*(round%3)+1, delivered)
		if data, err := os.ReadFile(path); err != nil || len(data) > 0 && data[len(data)-1] != '\n' {
			torn++
		}
	}
	t.Logf("%d of 10 kills left a torn line", torn)
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
	if len(delivered) < 10 {
		t.Errorf("only %d deliveries, the test shows nothing", len(delivered))
	}
}

// runAndKill starts a writing process, kills it some time after its n-th delivery and notes all its deliveries.
func runAndKill(t *testing.T, path string, n int, delivered map[string]bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashPathEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(out)
	for i := 1; scanner.Scan(); i++ {
		delivered[scanner.Text()] = true
		if i == n {
			time.AfterFunc(rand.N(20*time.Millisecond), func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Wait()
}
