package sourcetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// Compare does the same random things to a table of each harness and wants the same answers: what the suite forgot,
// the other source may remember. Both tables must be one partition and give the same seqs. The seed is in the test's
// name; the same seed does the same things.
func Compare(t *testing.T, a, b Harness, seed uint64, steps int) {
	for _, deletes := range []bool{false, true} {
		t.Run(fmt.Sprintf("seed %d, delete %v", seed, deletes), func(t *testing.T) {
			c := &comparison{t: t, rand: rand.New(rand.NewPCG(seed, 0)), batch: 1}
			for i, h := range []Harness{a, b} {
				c.tables[i] = h.New(t, Options{DeletePublished: deletes})
				c.workers[i] = join(t, c.tables[i], "one")
			}
			for range steps {
				c.step()
				if t.Failed() {
					for _, line := range c.log {
						t.Log(line)
					}
					return
				}
			}
		})
	}
}

type comparison struct {
	t       *testing.T
	rand    *rand.Rand
	tables  [2]Table
	workers [2]*worker
	rows    int
	batch   int64
	lease   core.Lease // of both: the newest that was acquired
	stale   core.Lease // one before
	log     []string
}

// both asks both sources the same and wants one answer.
func (c *comparison) both(what string, ask func(w *worker) any) any {
	c.t.Helper()
	var answers [2]any
	for i, w := range c.workers {
		answers[i] = ask(w)
	}
	c.log = append(c.log, fmt.Sprintf("%s: %+v", what, answers[0]))
	if one, two := fmt.Sprintf("%+v", answers[0]), fmt.Sprintf("%+v", answers[1]); one != two {
		c.t.Errorf("%s:\n%s\n%s", what, one, two)
	}
	return answers[0]
}

func (c *comparison) step() {
	switch n := c.rand.IntN(20); {
	case n < 4:
		c.insert()
	case n < 6:
		c.acquire()
	case n < 10:
		c.fetch()
	case n < 15:
		c.change()
	case n < 17:
		c.operate()
	case n < 18:
		dead := c.rand.IntN(2) == 0
		c.both(fmt.Sprint("blocking ", dead), func(w *worker) any {
			blocks, err := w.src.Blocking(w.ctx, 0, dead)
			return answer(blocks, err)
		})
	default:
		c.look()
	}
}

func (c *comparison) insert() {
	var rows []Row
	for range 1 + c.rand.IntN(30) {
		c.rows++
		rows = append(rows, Row{ID: fmt.Sprint("row", c.rows), Key: fmt.Sprint("key", c.rand.IntN(6)), Keyed: c.rand.IntN(5) > 0,
			Type: fmt.Sprint("type", c.rand.IntN(2)), Payload: make([]byte, c.rand.IntN(300)), Headers: []string{"", `{"a":"b"}`, `[]`}[c.rand.IntN(8)/3]})
	}
	for _, table := range c.tables {
		table.Insert(c.t, rows...)
	}
	c.log = append(c.log, fmt.Sprint("insert ", len(rows)))
}

// acquire lets the lease run out, or gives it back, or not; then asks for it.
func (c *comparison) acquire() {
	how, hold, owner := c.rand.IntN(3), c.rand.IntN(3) == 0, fmt.Sprint("owner", c.rand.IntN(3))
	got := c.both(fmt.Sprint("acquire ", how, " ", hold), func(w *worker) any {
		if len(w.leases) > 0 && how == 0 {
			w.expire()
		}
		if len(w.leases) > 0 && how == 1 {
			w.must(w.src.Release(w.ctx, w.owner, w.leases[0]))
		}
		if how < 2 || len(w.leases) == 0 {
			w.owner, w.leases = owner, nil
		}
		return w.acquire(1, hold)
	}).([]core.Acquired)
	if len(got) > 0 {
		c.stale, c.lease = c.lease, got[0].Lease
	}
}

// brief is what two sources must agree on in a row; times pass differently.
func brief(r core.Row) string {
	return fmt.Sprint(r.Record.Seq, r.Record.ID, r.Record.Key, r.Record.Keyed, r.Record.Type, len(r.Record.Payload), r.Record.Headers,
		r.Deliveries, r.Attempts, r.Crashes, r.Wait > 0, r.Attempts > 0 && r.Failing >= 0, r.Invalid)
}

func (c *comparison) fetch() {
	req := core.FetchRequest{Limit: 1 + c.rand.IntN(20), After: int64(c.rand.IntN(c.rows + 1)), MaxBytes: int64(c.rand.IntN(3) * 1500)}
	for seq := int64(1); seq < int64(c.rows); seq++ {
		if c.rand.IntN(4) == 0 {
			req.Known = append(req.Known, seq)
		}
	}
	for n := range 6 {
		if c.rand.IntN(6) == 0 {
			req.Exclude = append(req.Exclude, fmt.Sprint("key", n))
		}
	}
	c.both(fmt.Sprintf("fetch %+v", req), func(w *worker) any {
		page := w.fetch(req)
		var rows []string
		for _, r := range page.Rows {
			rows = append(rows, brief(r))
		}
		return fmt.Sprint(rows, page.More)
	})
}

// change settles, finishes and announces whatever comes, at times with what is no longer so.
func (c *comparison) change() {
	if c.lease.Epoch == 0 {
		return
	}
	pending := c.workers[0].fetch(core.FetchRequest{Limit: 60}).Rows
	change := core.Change{Lease: c.lease}
	if c.rand.IntN(10) == 0 {
		change.Lease = c.stale
	}
	failure := &core.Failure{Code: "code", Message: "message\x00", Duration: time.Second, Unsent: c.rand.IntN(3) == 0}
	announced := core.Announcement{Batch: c.batch}
	state := []core.State{core.Published, core.Published, core.Pending, core.Dead, core.Held}[c.rand.IntN(5)]
	for _, r := range pending {
		s := core.Settlement{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: state, Attempts: r.Attempts, Crashes: c.rand.IntN(2) * r.Crashes}
		switch c.rand.IntN(12) {
		case 0, 1:
			announced.Seqs = append(announced.Seqs, s.Seq)
			continue
		case 2:
			continue
		case 3:
			s.Deliveries--
		case 4:
			s.State = []core.State{core.Published, core.Pending, core.Dead, core.Held}[c.rand.IntN(4)]
		}
		if s.State != core.Published {
			s.Attempts++
			s.Failure = failure
			s.Delay = time.Duration(c.rand.IntN(2)) * time.Hour
		}
		change.Settle = append(change.Settle, s)
	}
	if len(announced.Seqs) > 0 {
		change.Announce = []core.Announcement{announced}
	}
	change.Finished = []core.Finished{{Batch: int64(c.rand.IntN(int(c.batch) + 1)), Keep: c.rand.IntN(2) == 0}}
	c.batch += int64(c.rand.IntN(2))
	c.both(fmt.Sprintf("step %v, %d settled, %d announced", change.Lease, len(change.Settle), len(announced.Seqs)), func(w *worker) any {
		return answer(nil, w.src.Step(w.ctx, w.owner, []core.Change{change}))
	})
}

func (c *comparison) operate() {
	id, verb := fmt.Sprint("row", 1+c.rand.IntN(c.rows+1)), c.rand.IntN(3)
	c.both(fmt.Sprint("operate ", verb, " ", id), func(w *worker) any {
		return answer(nil, []func() error{
			func() error { return w.op.Retry(w.ctx, core.Act{ID: id, By: "ops"}) },
			func() error { return w.op.ReleaseRow(w.ctx, core.Act{ID: id, By: "ops"}) },
			func() error { return w.op.Skip(w.ctx, core.Act{ID: id, By: "ops"}) },
		}[verb]())
	})
}

// look compares everything there is to see.
func (c *comparison) look() {
	c.both("list", func(w *worker) any {
		list, err := w.op.List(w.ctx, core.Filter{Limit: 10_000})
		w.must(err)
		var rows []string
		for _, r := range list {
			rows = append(rows, fmt.Sprint(r.Seq, r.ID, r.Key, r.State, r.Sending, r.Attempts, r.Deliveries, r.Crashes, timeless(r.LastError), r.AvailableAt.IsZero(), r.PublishedAt.IsZero(), r.Size))
		}
		return rows
	})
	id := fmt.Sprint("row", 1+c.rand.IntN(c.rows+1))
	c.both("show "+id, func(w *worker) any {
		info, history, err := w.op.Show(w.ctx, id)
		var lines []string
		for _, a := range history {
			lines = append(lines, fmt.Sprint(a.Deliveries, a.Code, timeless(a.Message), a.By, a.Duration))
		}
		return answer(fmt.Sprint(info.State, info.Headers, lines), err)
	})
	c.both("queue of "+id, func(w *worker) any {
		info, _, err := w.op.Show(w.ctx, id)
		if err != nil {
			return answer(nil, err)
		}
		q, err := w.op.Queue(w.ctx, info, core.Held, core.Dead)
		w.must(err)
		var first int64
		if q.First != nil {
			first = q.First.Seq
		}
		return fmt.Sprint(q.Before, first, q.Sent != nil)
	})
	c.both("lag and pulse", func(w *worker) any {
		lag, err := w.op.Lag(w.ctx)
		w.must(err)
		lag.Oldest, lag.OldestDue = 0, 0
		return fmt.Sprint(lag, w.beat("{}", long))
	})
}

// timeless takes the time out of what core.Interrupted says: each table has a clock of its own.
func timeless(text string) string {
	before, after, found := strings.Cut(text, " began to send it at ")
	if !found {
		return text
	}
	return before + after[len("2006-01-02T15:04:05.000Z"):]
}

// answer makes an error a word, since sources differ in what they say around it.
func answer(value any, err error) any {
	var state *core.StateError
	if errors.As(err, &state) {
		return *state
	}
	for _, known := range []error{core.ErrLeaseNotOwned, core.ErrNoRow} {
		if errors.Is(err, known) {
			return known
		}
	}
	if err != nil {
		return err
	}
	return value
}
