package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

// The test binary runs itself as another process: childEnv says what it does there, and on which file.
const (
	childEnv = "CONNECTD_SQLITE_TEST_CHILD"
	fileEnv  = "CONNECTD_SQLITE_TEST_FILE"
)

// child is a child's main. It speaks one line a step on stdout, and ends when stdin does.
func child() int {
	ctx := context.Background()
	cfg := sqlite.Config{Path: os.Getenv(fileEnv), Table: "outbox", BusyTimeout: patient}
	do := map[string]func(context.Context, sqlite.Config) error{
		"drain": childDrain, "init": childInit, "insert": childInsert, "hang": childHang,
	}[os.Getenv(childEnv)]
	if err := do(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// start runs a child; its lines come from the reader. It is killed when the test ends.
func start(t *testing.T, what, path string) (*exec.Cmd, io.WriteCloser, *bufio.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what, fileEnv+"="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
	})
	return cmd, in, bufio.NewReader(out)
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("the child said %q: %v", s, err)
	}
	return strings.TrimSuffix(s, "\n")
}

// childDrain takes the partition again and again and settles a page, until it finds nothing and stdin has ended.
func childDrain(ctx context.Context, cfg sqlite.Config) error {
	src, err := sqlite.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer src.Close()
	ended := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	owner := fmt.Sprint("process ", os.Getpid())
	for {
		last := false
		select {
		case <-ended:
			last = true
		default:
		}
		sent, err := drainOnce(ctx, src, owner)
		if err != nil {
			return err
		}
		for _, id := range sent {
			fmt.Println(id)
		}
		if last && len(sent) == 0 {
			return nil
		}
	}
}

func drainOnce(ctx context.Context, src *sqlite.Source, owner string) ([]string, error) {
	var taken []core.Acquired
	for taken == nil {
		var err error
		if taken, err = src.Acquire(ctx, owner, 1, time.Minute, false); err != nil {
			return nil, err
		}
	}
	l := taken[0].Lease
	page, err := sourcetest.Page(ctx, src, core.FetchRequest{Limit: 25})
	if err != nil {
		return nil, err
	}
	var sent []string
	a := core.Announcement{Batch: 1}
	settle := core.Change{Lease: l, Finished: []core.Finished{{Batch: 1}}}
	for _, r := range page.Rows {
		sent = append(sent, r.Record.ID)
		a.Seqs = append(a.Seqs, r.Record.Seq)
		settle.Settle = append(settle.Settle, core.Settlement{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Published})
	}
	if err := src.Step(ctx, owner, []core.Change{{Lease: l, Announce: []core.Announcement{a}}}); err != nil {
		return nil, err
	}
	if err := src.Step(ctx, owner, []core.Change{settle}); err != nil {
		return nil, err
	}
	return sent, src.Release(ctx, owner, l)
}

func TestProcessesShareAFileAndDoubleNothing(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	const processes, total = 3, 200
	lines := make(chan string)
	var ins []io.Closer
	for range processes {
		_, in, out := start(t, "drain", cfg.Path)
		ins = append(ins, in)
		go func() {
			scanner := bufio.NewScanner(out)
			for scanner.Scan() {
				lines <- scanner.Text()
			}
			lines <- ""
		}()
	}
	go func() {
		db := application(t, cfg.Path)
		for i := range total {
			if _, err := db.Exec(`INSERT INTO outbox (id, payload) VALUES (?, 'x')`, fmt.Sprint("row", i)); err != nil {
				t.Error(err)
			}
		}
		for _, in := range ins {
			in.Close()
		}
	}()
	times := map[string]int{}
	for ended := 0; ended < processes; {
		if id := <-lines; id != "" {
			times[id]++
		} else {
			ended++
		}
	}
	if len(times) != total {
		t.Errorf("%d rows were sent of %d", len(times), total)
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
}

func childInit(ctx context.Context, cfg sqlite.Config) error {
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	plan, err := sqlite.Plan(ctx, cfg, sqlite.InitOptions{})
	if err != nil {
		return err
	}
	return sqlite.Apply(ctx, cfg, plan)
}

func TestInitFromSeveralProcessesAtOnce(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	var cmds []*exec.Cmd
	var ins []io.Closer
	for range 4 {
		cmd, in, out := start(t, "init", cfg.Path)
		line(t, out)
		cmds, ins = append(cmds, cmd), append(ins, in)
	}
	for _, in := range ins {
		in.Close()
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("init: %v", err)
		}
	}
	open(t, cfg)
}

func childInsert(_ context.Context, cfg sqlite.Config) error {
	db, err := sqlOpen(cfg.Path)
	if err != nil {
		return err
	}
	defer db.Close()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if _, err := db.Exec(`INSERT INTO outbox (id, payload) VALUES (?, 'x')`, in.Text()); err != nil {
			return err
		}
		fmt.Println("inserted")
	}
	return nil
}

func TestWaitSeesAnotherProcessesCommitWithinASecond(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox"}
	initialise(t, cfg)
	src := open(t, cfg)
	_, in, out := start(t, "insert", cfg.Path)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := src.Wait(ctx); err != nil { // the first call may return for nothing
		t.Fatal(err)
	}
	for i := range 3 {
		woken := make(chan time.Time, 1)
		go func() {
			src.Wait(ctx)
			woken <- time.Now()
		}()
		fmt.Fprintln(in, "row", i)
		line(t, out)
		inserted := time.Now()
		if late := (<-woken).Sub(inserted); late > time.Second {
			t.Errorf("woken %v after the commit", late)
		}
	}
	in.Close()
}

// childHang settles a row with plain SQL as Step does, and dies before it commits.
func childHang(ctx context.Context, cfg sqlite.Config) error {
	db, err := sqlOpen(cfg.Path)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	for _, s := range []string{
		"BEGIN IMMEDIATE",
		"UPDATE outbox SET state = 'published', deliveries = deliveries + 1",
		"DELETE FROM connectd_inflight",
		"PRAGMA cache_spill = 1", "PRAGMA cache_size = 1", // so that some of it has reached the WAL
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) INSERT INTO outbox (id, payload) SELECT 'x' || i, randomblob(5000) FROM n",
	} {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	fmt.Println("hanging")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

func TestAProcessKilledInATransactionChangesNothing(t *testing.T) {
	cfg := sqlite.Config{Path: file(t), Table: "outbox", BusyTimeout: 50 * time.Millisecond}
	initialise(t, cfg)
	src := open(t, cfg)
	execute(t, cfg.Path, `INSERT INTO outbox (id, payload) VALUES ('a', 'x'), ('b', 'x')`)
	taken, err := src.Acquire(t.Context(), "one", 1, time.Minute, false)
	if err != nil || len(taken) != 1 {
		t.Fatal(taken, err)
	}
	l := taken[0].Lease
	if err := src.Step(t.Context(), "one", []core.Change{{Lease: l, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{1}}}}}); err != nil {
		t.Fatal(err)
	}
	cmd, _, out := start(t, "hang", cfg.Path)
	line(t, out)
	if err := src.Step(t.Context(), "one", []core.Change{{Lease: l}}); err == nil {
		t.Fatal("the file is not locked by the child")
	}
	if page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10}); err != nil || len(page.Rows) != 2 {
		t.Fatalf("a fetch while another process writes: %d rows, %v", len(page.Rows), err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := src.Release(t.Context(), "one", l); err != nil {
		t.Fatalf("after the child is dead: %v", err)
	}
	taken, err = src.Acquire(t.Context(), "two", 1, time.Minute, false)
	if err != nil || len(taken) != 1 || len(taken[0].Recovered) != 1 || taken[0].Recovered[0].State != core.Pending {
		t.Fatal(taken, err)
	}
	if page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10}); err != nil || len(page.Rows) != 2 {
		t.Fatalf("rows pending: %d, %v", len(page.Rows), err)
	}
}
