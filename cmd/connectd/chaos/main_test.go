//go:build linux

package chaos

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	chaosTime  = flag.Duration("chaos.time", 0, "break things for so long with every pair, one after another; 0: some pairs for a few seconds, at once")
	chaosSeed  = flag.Uint64("chaos.seed", 0, "repeat the schedule of a run; 0: a new one")
	chaosPairs = flag.String("chaos.pairs", "", "only these `SOURCE-SINK,...`")
	chaosKeep  = flag.String("chaos.keep", "", "keep logs, truth logs, files and SQLite databases in this `DIR`")
	reportTo   = flag.String("report", "", "write what was seen to this `FILE`, in Markdown")
)

// short is what `make test` does: so little that it ends soon on a machine that is busy with other tests too.
const (
	shortTime   = 6 * time.Second
	shortRows   = 600
	shortSettle = 45 * time.Second
)

func TestMain(m *testing.M) {
	if isKiller() {
		serveKiller()
		return
	}
	goleak.VerifyTestMain(m)
}

// TestFaults breaks things with every pair and holds the end against the laws. What goes wrong elsewhere in such moments, and
// would break a law here: A1, A3, A4, A5, A7, A21, A22, A25, A27, B1, B3, B5, B9, B13, I1, I2, I3, I5, I13, J1, J2, J3,
// J7, J9.
func TestFaults(t *testing.T) {
	plan, pairs := plan{seed: *chaosSeed, total: *chaosTime, rows: math.MaxInt, settle: patience}, allPairs()
	if plan.total == 0 {
		plan.total, plan.rows, plan.settle, pairs = shortTime, shortRows, shortSettle, shortPairs()
	}
	if plan.seed == 0 {
		plan.seed = rand.Uint64()
	}
	if *chaosPairs != "" {
		pairs = named(t, *chaosPairs)
	}
	program := build(t)
	r := newReport(t, plan)
	t.Run("pairs", func(t *testing.T) {
		for _, p := range pairs {
			t.Run(p.String(), func(t *testing.T) {
				if *chaosTime == 0 {
					t.Parallel()
				}
				t.Logf("to repeat it: go test -run '^TestFaults$' ./cmd/connectd/chaos -chaos.pairs %v -chaos.time %v -chaos.seed %d", p, plan.total, plan.seed)
				r.add(run(t, program, p, plan))
			})
		}
	})
	if *reportTo == "" {
		return
	}
	if err := os.WriteFile(*reportTo, []byte(r.markdown()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// named finds pairs by their names.
func named(t *testing.T, names string) (list []pair) {
	t.Helper()
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(allPairs(), func(p pair) bool { return p.String() == name })
		if i < 0 {
			t.Fatalf("there is no pair %q: they are %v", name, allPairs())
		}
		list = append(list, allPairs()[i])
	}
	return list
}

// build builds the daemon, with the race detector if these tests have it.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "connectd")
	args := append([]string{"build", "-o", program}, buildFlags()...)
	out, err := exec.CommandContext(t.Context(), "go", append(args, "github.com/connectd/connectd/cmd/connectd")...).CombinedOutput()
	if err != nil {
		t.Fatalf("building connectd: %v\n%s", err, out)
	}
	return program
}

// workDir is where a pair's files are.
func workDir(t *testing.T, p pair) string {
	t.Helper()
	if *chaosKeep == "" {
		return t.TempDir()
	}
	dir, err := filepath.Abs(filepath.Join(*chaosKeep, fmt.Sprintf("%v-%d", p, time.Now().Unix())))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("everything is kept in %s", dir)
	return dir
}
