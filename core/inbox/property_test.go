package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core/inbox"
	"github.com/connectd/connectd/scripts/services/prepared"
)

// Consumers get commands again and again at the same time, and their effects end in every way there is. At each moment a
// command has one effect if its receipt says done, and none if not; all receipts that are given out for it are the same.
func TestAnyInterleaving(t *testing.T) { eachWorld(t, interleave) }

// The same in transactions of the caller's own, with what MySQL has for its default: an isolation level that shows no newer
// receipts. PostgreSQL refuses a call rather than run an effect twice.
func TestAnyInterleavingWithinTransactions(t *testing.T) {
	prepared.Each(t, func(t *testing.T, db prepared.Database) {
		w := newWorld(t, db)
		o := &sql.TxOptions{Isolation: sql.LevelRepeatableRead}
		if db.Dialect == "sqlite" {
			o = nil
		}
		w.do = func(ctx context.Context, in *inbox.Inbox, id string, effect func(context.Context, executor) (string, error)) (inbox.Receipt, error) {
			tx, err := db.DB.BeginTx(ctx, o)
			if err != nil {
				return inbox.Receipt{}, err
			}
			defer tx.Rollback()
			if db.Dialect != "sqlite" { // where it would be a transaction that has read before it writes
				if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM connectd_receipt").Scan(new(int)); err != nil {
					return inbox.Receipt{}, err
				}
			}
			r, err := in.DoTx(ctx, tx, id, func(ctx context.Context, tx *sql.Tx) (string, error) {
				return effect(ctx, func(statement string) error { _, err := tx.ExecContext(ctx, statement); return err })
			})
			if r.Status == "" {
				return r, err
			}
			if failed := tx.Commit(); failed != nil {
				return inbox.Receipt{}, failed
			}
			return r, err
		}
		interleave(t, w)
	})
}

func interleave(t *testing.T, w world) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	in := w.in(t, "billing")
	commands := []string{"a", "b", "c"}
	var done sync.Map // the receipt of a command
	var ran sync.Map  // the command's calls that say they have run the effect
	keep := func(id string, r inbox.Receipt, err error) {
		if err != nil {
			if r.Status == inbox.Done {
				t.Errorf("%s: %v with %+v", id, err, r)
			}
			return
		}
		if !r.Repeat {
			if _, twice := ran.LoadOrStore(id, true); twice {
				t.Errorf("%s: two calls have run the effect", id)
			}
		}
		if r.Repeat = false; r.Status != inbox.Done {
			t.Errorf("%s: %+v without an error", id, r)
		} else if first, there := done.LoadOrStore(id, r); there && first != r {
			t.Errorf("%s: receipts %+v and %+v", id, first, r)
		}
	}
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(worker)))
			for range 12 {
				id := commands[random.IntN(len(commands))]
				r, err := attempt(ctx, w, in, id, random.IntN(10))
				keep(id, r, err)
			}
		})
	}
	wg.Wait()
	for _, id := range commands {
		effects := "0"
		if _, is := done.Load(id); is {
			effects = "1"
		}
		w.want(t, id, effects)
		r, err := w.do(ctx, in, id, leaving(id, "last", nil))
		if err != nil {
			t.Error(err)
		}
		keep(id, r, err)
		w.want(t, id, "1")
	}
}

func attempt(ctx context.Context, w world, in *inbox.Inbox, id string, how int) (r inbox.Receipt, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			r, err = inbox.Receipt{}, fmt.Errorf("panic: %v", p)
		}
	}()
	return w.do(ctx, in, id, func(_ context.Context, exec executor) (string, error) {
		err := exec(leave(id))
		switch how {
		case 0, 1, 2:
			return "", errors.Join(err, errors.New("mine"))
		case 3, 4, 5:
			return "", errors.Join(err, &inbox.Failure{Reason: "mine"})
		case 6:
			panic("mine")
		case 7, 8:
			cancel()
		}
		return fmt.Sprint(rand.Uint64()), err
	})
}
