package inbox_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/connectd/connectd/core/inbox"
	"github.com/connectd/connectd/scripts/services/prepared"
)

// The environment of a process that is killed in the middle of an effect: its database.
const (
	victimDriver  = "INBOX_TEST_DRIVER"
	victimDSN     = "INBOX_TEST_DSN"
	victimDialect = "INBOX_TEST_DIALECT"
)

// victim runs an effect and stops between it and the commit, until it is killed.
func victim() {
	db, err := sql.Open(os.Getenv(victimDriver), os.Getenv(victimDSN))
	if err == nil {
		var in *inbox.Inbox
		if in, err = inbox.New(inbox.Dialect(os.Getenv(victimDialect)), "billing", inbox.Options{}); err == nil {
			_, err = in.Do(context.Background(), db, "a", func(ctx context.Context, tx *sql.Tx) (string, error) {
				_, err := tx.ExecContext(ctx, leave("a"))
				if err == nil {
					fmt.Println("working")
					time.Sleep(time.Minute)
				}
				return "", err
			})
		}
	}
	fmt.Println(errors.Join(errors.New("not killed"), err))
}

// A consumer that dies between the effect and the commit leaves neither an effect nor a receipt, and who waits for it goes on.
func TestKilledBeforeTheCommit(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		w := newWorld(t, db)
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), victimDriver+"="+db.Driver, victimDSN+"="+db.DSN, victimDialect+"="+db.Dialect)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "working" {
			t.Fatal("the victim says ", lines.Text())
		}
		second := make(chan error)
		go func() {
			r, err := newInbox(t, db.Dialect, "billing").Do(context.Background(), db.DB, "a", func(ctx context.Context, tx *sql.Tx) (string, error) {
				_, err := tx.ExecContext(ctx, leave("a"))
				return "", err
			})
			if err == nil && r.Repeat {
				err = errors.New("the effect of the dead counts")
			}
			second <- err
		}()
		w.awaitWaiting(t)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if err := <-second; err != nil {
			t.Error(err)
		}
		w.want(t, "a", "1")
		if got := w.stored(t, "a"); got != "done NULL" {
			t.Error(got)
		}
	})
}
