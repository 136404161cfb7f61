package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

func publish(l core.Lease, seqs ...int64) core.Change {
	c := core.Change{Lease: l, Finished: []core.Finished{{Batch: 1}}}
	for _, seq := range seqs {
		c.Settle = append(c.Settle, core.Settlement{Seq: seq, State: core.Published})
	}
	return c
}

func state(t *testing.T, src *mysql.Source, id string) core.State {
	t.Helper()
	info, _, err := src.Show(t.Context(), id)
	must(t, err)
	return info.State
}

// A server that restarts, or a network that is cut: errors, and no more when it is back. What was held is still held.
func TestTheServerGoesAwayAndComesBack(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, _ := srv.one(t)
		srv.execute(t, cfg, `INSERT INTO outbox (id, payload) VALUES ('a', 'x')`)
		through, p := behindProxy(t, cfg)
		src := source(t, through)
		lease := acquired(t, src, "one")[0]
		announce := core.Change{Lease: lease, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{1}}}}
		must(t, src.Step(t.Context(), "one", []core.Change{announce}))
		for range 2 {
			p.away()
			for what, call := range map[string]func() error{
				"step":      func() error { return src.Step(t.Context(), "one", []core.Change{publish(lease, 1)}) },
				"fetch":     func() error { _, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 1}); return err },
				"heartbeat": func() error { _, err := src.Heartbeat(t.Context(), "one", nil, longLease); return err },
				"acquire":   func() error { _, err := src.Acquire(t.Context(), "one", 1, longLease, false); return err },
				"renew":     func() error { _, err := src.Renew(t.Context(), "one", []core.Lease{lease}, longLease); return err },
				"lag":       func() error { _, err := src.Lag(t.Context()); return err },
			} {
				if err := call(); err == nil || errors.Is(err, core.ErrLeaseNotOwned) {
					t.Errorf("%s while the server is away: %v", what, err)
				}
			}
			if _, err := mysql.Open(t.Context(), through); err == nil || errors.Is(err, core.ErrNotInitialised) {
				t.Errorf("opened while the server is away: %v", err)
			}
			p.back()
			if kept, err := src.Renew(t.Context(), "one", []core.Lease{lease}, longLease); err != nil || len(kept) != 1 {
				t.Errorf("renewed when it is back: %v, %v", kept, err)
			}
		}
		must(t, src.Step(t.Context(), "one", []core.Change{publish(lease, 1)}))
		if got := state(t, src, "a"); got != core.Published {
			t.Errorf("the row is %s", got)
		}
	})
}

// hold keeps a row locked until the function it returns is called.
func hold(t *testing.T, cfg mysql.Config, query string) (release func()) {
	t.Helper()
	tx, err := open(t, cfg.DSN).BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // nothing but the rows
	must(t, err)
	_, err = tx.Exec(query)
	must(t, err)
	return func() { must(t, tx.Rollback()) }
}

// waiting finds the connection that waits for a lock of the test's database with a statement that contains text.
func waiting(t *testing.T, cfg mysql.Config, text string) (id int64) {
	t.Helper()
	db := open(t, cfg.DSN)
	until(t, "a statement that waits", func() bool {
		err := db.QueryRow(`SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id() AND info LIKE ?`, "%"+text+"%").Scan(&id)
		return err == nil
	})
	return id
}

// A settlement whose connection is killed has changed nothing, and is repeated as it is.
func TestABackendIsKilledInMidSettle(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for _, verb := range []string{"KILL CONNECTION", "KILL QUERY"} {
			cfg, src := srv.one(t)
			srv.execute(t, cfg, `INSERT INTO outbox (id, payload) VALUES ('a', 'x'), ('b', 'x')`)
			lease := acquired(t, src, "one")[0]
			must(t, src.Step(t.Context(), "one", []core.Change{{Lease: lease, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{1, 2}}}}}))
			release := hold(t, cfg, `SELECT * FROM outbox WHERE seq = 2 FOR UPDATE`)
			answer := make(chan error, 1)
			go func() { answer <- src.Step(t.Context(), "one", []core.Change{publish(lease, 1, 2)}) }()
			srv.execute(t, cfg, fmt.Sprint(verb, " ", waiting(t, cfg, "UPDATE%outbox%seq")))
			if err := <-answer; err == nil || errors.Is(err, core.ErrLeaseNotOwned) {
				t.Errorf("%s: the step: %v", verb, err)
			}
			release()
			if got := state(t, src, "a"); got != core.Pending {
				t.Errorf("half a settlement: the first row is %s", got)
			}
			must(t, src.Step(t.Context(), "one", []core.Change{publish(lease, 1, 2)}))
			if lag, err := src.Lag(t.Context()); err != nil || lag.Pending != 0 || lag.InFlight != 0 {
				t.Errorf("in the end: %+v, %v", lag, err)
			}
		}
	})
}

// A deadlock undoes the transaction, a lock wait that takes too long one statement of it: either way the whole is repeated.
func TestDeadlocksAndLockWaitsAreRepeatedWhole(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		t.Run("1213", func(t *testing.T) {
			cfg, src := srv.one(t)
			srv.execute(t, cfg, `INSERT INTO outbox (id, payload) VALUES ('a', 'x'), ('b', 'x')`, `CREATE TABLE weight (n int) ENGINE=InnoDB`)
			lease := acquired(t, src, "one")[0]
			tx, err := open(t, cfg.DSN).Begin()
			must(t, err)
			// The server gives up the transaction that has changed less.
			_, err = tx.Exec(`INSERT INTO weight SELECT 1 FROM information_schema.collations LIMIT 100`)
			must(t, err)
			_, err = tx.Exec(`SELECT * FROM outbox WHERE seq = 2 FOR UPDATE`)
			must(t, err)
			answer := make(chan error, 1)
			go func() { answer <- src.Step(t.Context(), "one", []core.Change{publish(lease, 1, 2)}) }()
			waiting(t, cfg, "UPDATE%outbox%seq")
			_, err = tx.Exec(`SELECT * FROM connectd_lease FOR UPDATE`)
			must(t, err)
			must(t, tx.Rollback())
			must(t, <-answer)
			if src.Repeated() == 0 {
				t.Error("there was no deadlock: this proves nothing")
			}
			if a, b := state(t, src, "a"), state(t, src, "b"); a != core.Published || b != core.Published {
				t.Errorf("the rows are %s and %s", a, b)
			}
		})
		t.Run("1205", func(t *testing.T) {
			cfg, src := srv.one(t)
			srv.execute(t, cfg, `INSERT INTO outbox (id, payload) VALUES ('a', 'x'), ('b', 'x')`)
			lease := acquired(t, src, "one")[0]
			release := hold(t, cfg, `SELECT * FROM outbox WHERE seq = 2 FOR UPDATE`)
			answer := make(chan error, 1)
			go func() { answer <- src.Step(t.Context(), "one", []core.Change{publish(lease, 1, 2)}) }()
			until(t, "the first wait to end", func() bool { return src.Repeated() > 0 })
			release()
			must(t, <-answer)
			if a, b := state(t, src, "a"), state(t, src, "b"); a != core.Published || b != core.Published {
				t.Errorf("the rows are %s and %s", a, b)
			}
		})
	})
}

// A lease is judged by the time when its lock was got, not when it was asked for, which is what the server's clock says
// inside a statement: https://github.com/Soju06/codex-lb/pull/1253
func TestTimeIsReadUnderTheLock(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t)
		for what, call := range map[string]func(core.Lease) error{
			"step":    func(l core.Lease) error { return src.Step(t.Context(), "one", []core.Change{{Lease: l}}) },
			"release": func(l core.Lease) error { return src.Release(t.Context(), "one", l) },
		} {
			taken, err := src.Acquire(t.Context(), "one", 1, 500*time.Millisecond, false)
			if err != nil || len(taken) != 1 {
				t.Fatal(taken, err)
			}
			release := hold(t, cfg, `SELECT * FROM connectd_lease FOR UPDATE`)
			answer := make(chan error, 1)
			go func() { answer <- call(taken[0].Lease) }()
			waiting(t, cfg, "TIMESTAMPDIFF%FOR UPDATE")
			until(t, "the lease to run out", func() bool {
				leases, err := src.Leases(t.Context())
				must(t, err)
				return leases[0].Left <= 0
			})
			release()
			if err := <-answer; !errors.Is(err, core.ErrLeaseNotOwned) {
				t.Errorf("a %s that waited for the lock until its lease had run out: %v", what, err)
			}
		}
	})
}

// Two acquisitions at once both get partitions: https://github.com/OneUptime/blog/pull/160
func TestLockedLeasesArePassedOver(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{Partitions: 16})
		src := source(t, cfg)
		release := hold(t, cfg, `SELECT * FROM connectd_lease WHERE tbl = 'outbox' AND part IN (0, 1, 2, 3, 4, 5, 6, 7) FOR UPDATE`)
		taken, err := src.Acquire(t.Context(), "one", 5, longLease, false)
		if err != nil || len(taken) != 5 || taken[0].Lease.Part != 8 {
			t.Errorf("beside another acquisition: %+v, %v", taken, err)
		}
		release()
		if rest := acquired(t, src, "two"); len(rest) != 11 {
			t.Errorf("%d partitions were left", len(rest))
		}
	})
}

// user makes a user with some rights in the test's database and none beyond.
func (srv server) user(t *testing.T, cfg mysql.Config, rights string) mysql.Config {
	t.Helper()
	c, err := driver.ParseDSN(cfg.DSN)
	must(t, err)
	c.User, c.Passwd = fmt.Sprint("u", databases.Add(1), c.DBName[len("connectd_test_"):]), "s3cret"
	admin := cfg
	for _, host := range []string{"%", "localhost"} { // some servers have an anonymous user at localhost, which would come first
		name := fmt.Sprintf("'%s'@'%s'", c.User, host)
		srv.execute(t, admin, `CREATE USER `+name+` IDENTIFIED BY 's3cret'`, `GRANT `+rights+` ON `+c.DBName+`.* TO `+name)
		t.Cleanup(func() { srv.execute(t, admin, `DROP USER `+name) })
	}
	cfg.DSN = c.FormatDSN()
	return cfg
}

// A user who may not see running transactions relies on how long they last at most; others see when they end.
func TestHorizon(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		admin := srv.config(t)
		plain := srv.user(t, admin, "ALL")
		initialise(t, plain, mysql.InitOptions{Partitions: 1})
		plain.MaxTransaction = 300 * time.Millisecond
		admin.MaxTransaction = time.Millisecond // does not matter
		horizon := func(src *mysql.Source) core.Horizon {
			t.Helper()
			page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 1})
			must(t, err)
			return *page.Horizon
		}
		blind, seeing := source(t, plain), source(t, admin)
		release := hold(t, admin, `INSERT INTO outbox (id, payload) VALUES ('open', 'x')`)
		begun := time.Now()
		first, seen := horizon(blind), horizon(seeing)
		until(t, "the horizon to pass a transaction that should have ended", func() bool { return horizon(blind).Oldest >= first.Next })
		if took := time.Since(begun); took < plain.MaxTransaction {
			t.Errorf("it passed after %v", took)
		}
		for range 30 {
			if h := horizon(seeing); h.Oldest >= seen.Next {
				t.Fatalf("%+v has passed %+v while the transaction is open", h, seen)
			}
			time.Sleep(100 * time.Millisecond)
		}
		release()
		until(t, "the horizon to pass", func() bool { return horizon(seeing).Oldest >= seen.Next })
	})
}

// Whatever a DSN or a server has for its sessions, ours are as the statements need them.
func TestSessions(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, _ := srv.one(t)
		cfg.DSN = withOptions(cfg.DSN, "sql_mode=%27ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT%27&autocommit=0&sql_select_limit=1&time_zone=%27-07:00%27&sql_safe_updates=1&wait_timeout=1&innodb_lock_wait_timeout=1000&charset=latin1")
		db := open(t, cfg.DSN)
		var mode string
		must(t, db.QueryRow(`SELECT @@sql_mode`).Scan(&mode))
		if !strings.Contains(mode, "NO_BACKSLASH_ESCAPES") {
			t.Fatalf("the options had no effect: %s", mode)
		}
		srv.execute(t, mysql.Config{DSN: strings.ReplaceAll(cfg.DSN, "autocommit=0", "autocommit=1")}, `INSERT INTO outbox (id, payload) VALUES ('a\b"''é', 'x'), ('b', 'x')`)
		src := source(t, cfg)
		if got := inOrder(pendingRows(t, src)); got != `a\b"'é b` {
			t.Errorf("rows %q", got)
		}
		lease := acquired(t, src, "one")[0]
		must(t, src.Step(t.Context(), "one", []core.Change{{Lease: lease, Settle: []core.Settlement{{Seq: 1, State: core.Dead, Attempts: 1, Failure: &core.Failure{Code: `c\`, Message: `'; DROP TABLE outbox; -- \`}}}}}))
		if info, history, err := src.Show(t.Context(), `a\b"'é`); err != nil || info.LastError != `c\: '; DROP TABLE outbox; -- \` || len(history) != 1 {
			t.Errorf("%+v, %v", info, err)
		}
		values, err := src.Session(t.Context())
		if want := "READ-COMMITTED 1 +00:00 30 5 utf8mb4"; err != nil || values != want {
			t.Errorf("the session has %q, want %q, %v", values, want, err)
		}
	})
}

// A server, or the way to it, that goes away without a word: the context ends the call, whatever statement it was at.
func TestNoCallOutlivesItsContext(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		direct := srv.config(t)
		initialise(t, direct, mysql.InitOptions{})
		for _, lost := range []string{"SELECT TIMESTAMPDIFF", "INSERT", "COMMIT"} {
			cfg, p := behindProxy(t, direct)
			src := source(t, cfg)
			taken, err := src.Acquire(t.Context(), lost, 1, time.Minute, false)
			must(t, err)
			must(t, src.Step(t.Context(), lost, []core.Change{{Lease: taken[0].Lease}})) // so that there is a connection
			p.lost.Store("\x03" + lost)                                                  // the command that is a query
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			done := make(chan error, 1)
			go func() {
				done <- src.Step(ctx, lost, []core.Change{{Lease: taken[0].Lease, Announce: []core.Announcement{{Batch: 1, Seqs: []int64{1}}}}})
			}()
			select {
			case err := <-done:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("without an answer to %s: %v", lost, err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("without an answer to %s the step does not end", lost)
			}
			cancel()
			p.away()
		}
	})
}

// Calls that are cancelled leave no lock behind, whatever they were doing.
func TestCancelledStepsLeaveNoLock(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t)
		srv.execute(t, cfg, `INSERT INTO outbox (id, payload) VALUES ('a', 'x'), ('b', 'x')`)
		lease := acquired(t, src, "one")[0]
		release := hold(t, cfg, `SELECT * FROM outbox WHERE seq = 2 FOR UPDATE`)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if err := src.Step(ctx, "one", []core.Change{publish(lease, 1, 2)}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a step that was cut short: %v", err)
				}
			})
		}
		wg.Wait()
		release()
		must(t, src.Step(t.Context(), "one", []core.Change{publish(lease, 1, 2)}))
	})
}

func TestPrivileges(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		admin := srv.config(t)
		admin.DeletePublished = true
		initialise(t, srv.user(t, admin, "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, LOCK TABLES"), mysql.InitOptions{Partitions: 1})
		srv.execute(t, admin, `INSERT INTO outbox (id, payload) VALUES ('a', 'x'), ('b', 'x')`)
		src := source(t, srv.user(t, admin, "SELECT, INSERT, UPDATE, DELETE"))
		if _, err := src.Heartbeat(t.Context(), "one", nil, longLease); err != nil {
			t.Error(err)
		}
		lease := acquired(t, src, "one")[0]
		must(t, src.Step(t.Context(), "one", []core.Change{{Lease: lease, Settle: []core.Settlement{{Seq: 1, State: core.Dead, Attempts: 1, Failure: &core.Failure{Code: "x"}}}}}))
		must(t, src.Retry(t.Context(), core.Act{ID: "a", By: "ops"}))
		must(t, src.Release(t.Context(), "one", lease))
		publishAll(t, src)
		if lag, err := src.Lag(t.Context()); err != nil || lag != (core.Lag{}) {
			t.Errorf("%+v, %v", lag, err)
		}
	})
}

// horizonOf asks for a source's horizon, whenever it is called.
func horizonOf(t *testing.T, src *mysql.Source) func() core.Horizon {
	return func() core.Horizon {
		page, err := sourcetest.Page(t.Context(), src, core.FetchRequest{Limit: 10})
		must(t, err)
		return *page.Horizon
	}
}

// InnoDB gives everybody the list of transactions that it made for the last one who asked, for as long as somebody asks
// more often than ten times a second. A transaction that is not in such a list may run all the same.
func TestHorizonWhileOthersListTransactions(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{Partitions: 1})
		src := source(t, cfg)
		horizon := horizonOf(t, src)
		ctx, stop := context.WithCancel(t.Context())
		monitor, ended := open(t, srv.dsn), make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				var n int
				_ = monitor.QueryRowContext(ctx, `SELECT COUNT(*) FROM information_schema.innodb_trx`).Scan(&n)
			}
		}()
		defer func() { stop(); <-ended }()
		time.Sleep(300 * time.Millisecond) // the monitor's list is older than the transaction
		tx, err := open(t, cfg.DSN).Begin()
		must(t, err)
		defer tx.Rollback()
		_, err = tx.Exec(`INSERT INTO outbox (id, payload) VALUES ('late', 'x')`)
		must(t, err)
		seen := horizon()
		for begun := time.Now(); time.Since(begun) < 4*time.Second; time.Sleep(50 * time.Millisecond) {
			if h := horizon(); h.Oldest >= seen.Next {
				t.Fatalf("the horizon %+v passed a running transaction that was there at %+v", h, seen)
			}
		}
		must(t, tx.Commit())
		stop()
		until(t, "the horizon to pass", func() bool { return horizon().Oldest >= seen.Next })
	})
}

// A transaction that is prepared runs until it is committed, though nobody is connected to it.
func TestHorizonOfAPreparedTransaction(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{Partitions: 1})
		src := source(t, cfg)
		horizon := horizonOf(t, src)
		db := open(t, cfg.DSN)
		conn, err := db.Conn(t.Context())
		must(t, err)
		for _, s := range []string{`XA START 'horizon'`, `INSERT INTO outbox (id, payload) VALUES ('late', 'x')`, `XA END 'horizon'`, `XA PREPARE 'horizon'`} {
			_, err := conn.ExecContext(t.Context(), s)
			must(t, err)
		}
		must(t, conn.Close())
		must(t, db.Close())
		seen := horizon()
		for range 40 {
			if h := horizon(); h.Oldest >= seen.Next {
				t.Errorf("%+v has passed %+v while the transaction is prepared", h, seen)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		srv.execute(t, cfg, `XA COMMIT 'horizon'`)
		until(t, "the horizon to pass", func() bool { return horizon().Oldest >= seen.Next })
	})
}

// A person who changes a row that another transaction has locked is told so after some seconds, and nothing is changed.
func TestAChangeOfALockedRow(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg, src := srv.one(t)
		srv.execute(t, cfg, `INSERT INTO outbox (id, payload, state) VALUES ('a', 'x', 'dead')`)
		release := hold(t, cfg, `SELECT * FROM outbox WHERE seq = 1 FOR UPDATE`)
		begun := time.Now()
		if err := src.Retry(t.Context(), core.Act{ID: "a", By: "ops"}); !errors.Is(err, core.ErrLocked) || time.Since(begun) > 15*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		release()
		if got := state(t, src, "a"); got != core.Dead {
			t.Errorf("the row is %s", got)
		}
		must(t, src.Retry(t.Context(), core.Act{ID: "a", By: "ops"}))
	})
}
