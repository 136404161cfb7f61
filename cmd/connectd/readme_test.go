package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReadmeTutorial runs the commands of the README's tutorial, in a shell that finds this test binary under the names
// connectd, sqlite3 and sleep. The last two stand in for programs that may not be there and for time that may not be
// enough: sqlite3 runs its SQL, sleep waits until the daemon has nothing left to do.
func TestReadmeTutorial(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(readme), "<!-- tutorial -->")
	text, _, found := strings.Cut(after, "<!-- /tutorial -->")
	if !found {
		t.Fatal("the README has no tutorial")
	}
	script := "set -eu\n" + strings.ReplaceAll(shellBlocks(text), "127.0.0.1:8083", freePort(t))
	dir, path := t.TempDir(), standIns(t, "connectd", "sqlite3", "sleep")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), path)
	out, err := cmd.CombinedOutput()
	log, _ := os.ReadFile(filepath.Join(dir, "shop", "connectd.log"))
	if err != nil {
		t.Fatalf("%v\n%s\nthe daemon's log:\n%s", err, out, log)
	}
	for _, want := range []string{
		"orders: ok", "CREATE TABLE", `{"id":"order-1","key":"ada"`, "running", "headers are not", "What to do", "rows retry order-3",
		"retried order-3", `{"id":"order-3","key":"ada"`,
	} {
		if !strings.Contains(strings.ToLower(string(out)), strings.ToLower(want)) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(string(out), `"id":"order-2"`) {
		t.Errorf("a command whose transaction was rolled back arrived:\n%s", out)
	}
}

// shellBlocks joins the blocks that are marked as shell.
func shellBlocks(markdown string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(markdown, "```sh\n") {
		if code, _, found := strings.Cut(part, "```"); found {
			b.WriteString(code)
		}
	}
	return b.String()
}

// freePort is an address nobody listens on at the moment.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// standIn is this test binary under the name of another program.
func standIn(name string, args []string) error {
	path := "shop.db"
	if name == "sqlite3" {
		path = args[0]
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	if name == "sqlite3" {
		_, err := db.Exec(args[1])
		return err
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var pending int
		if err := db.QueryRow("SELECT count(*) FROM outbox WHERE state = 'pending'").Scan(&pending); err != nil || pending == 0 {
			return err
		}
	}
	return fmt.Errorf("rows are still pending after %v", patience)
}
