//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// plan is what a run does with each pair.
type plan struct {
	seed   uint64
	total  time.Duration // in which things break
	rows   int           // after which producers stop
	settle time.Duration // until nothing may be left to do, once everything is mended
}

// run is one pair's life: everything starts, things break for a while, everything is mended, the backlog drains, the
// daemons are stopped, and what is left is held against the laws.
func run(t *testing.T, program string, p pair, plan plan) *result {
	dir := workDir(t, p)
	d := openDatabase(t, p, dir)
	to := startReceiver(t, p, dir, plan.total)
	f := newFleet(t, program, dir, p, d, to)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &world{fleet: f, database: d, receiver: to, takeovers: &takeovers{database: d, ctx: ctx}, shares: p.shares()}
	truth := filepath.Join(dir, "truth.jsonl")
	must(t, d.prepareProbe(ctx))
	app, err := produce(d, truth, p, plan)
	must(t, err)
	for _, s := range f.slots {
		must(t, f.start(s))
	}
	for _, s := range f.slots {
		must(t, s.current().listens())
	}
	must(t, d.flows(ctx))
	start := time.Now()
	still := watchStalls(start, d.probe)
	happened, broken := w.play(p.schedule(plan.seed, plan.total), start, plan.total)
	if broken == nil {
		time.Sleep(time.Until(start.Add(plan.total)))
	}
	must(t, app.stop())
	mended := time.Now()
	if broken == nil {
		broken = w.settle(ctx, plan.settle)
	}
	settled := time.Since(mended)
	if broken == nil {
		broken = f.stop()
	}
	cancel()
	w.takeovers.wg.Wait()
	still.stop()
	killed, err := killings(dir, start)
	must(t, err)
	h := &history{accidents: slices.Concat(happened, still.list, killed), takeovers: w.takeovers.list, late: still.late, fleet: p.limits()}
	if err := w.gather(t.Context(), h, truth); err != nil {
		t.Fatal(errors.Join(broken, err))
	}
	violations := h.check()
	if err := errors.Join(broken, f.traces()); err != nil {
		violations = append(violations, violation{law: inGoodOrder, text: err.Error()})
	}
	tell(t, h, violations)
	must(t, os.WriteFile(filepath.Join(dir, "accidents.log"), []byte(h.chronicle()), 0o644))
	r := summarize(p, h, violations)
	r.settled, r.target = settled, to.name()
	must(t, d.describe(t.Context(), r))
	for _, s := range f.slots {
		r.starts += s.starts
	}
	t.Log(r)
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// settle waits until nothing is left to do.
func (w *world) settle(ctx context.Context, patience time.Duration) error {
	var rows int
	var batches []string
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := w.fleet.check(); err != nil {
			return err
		}
		if rows, err = w.database.pending(ctx); err != nil || rows > 0 {
			continue
		}
		if batches, err = w.database.announced(ctx); err == nil && len(batches) == 0 {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("%v after everything was mended %d rows are pending and announced is %q", patience, rows, batches), err)
}

// stop ends all daemons in good order.
func (f *fleet) stop() error {
	for _, s := range f.slots {
		if err := s.current().stop(); err != nil {
			return err
		}
	}
	for _, s := range f.slots {
		if err := s.current().wait(); err != nil {
			return err
		}
	}
	return nil
}

// gather reads what the checker looks at: what the producers know, the table, and what arrived.
func (w *world) gather(ctx context.Context, h *history, truth string) (err error) {
	if h.facts, err = readTruth(truth); err != nil {
		return err
	}
	if h.rows, err = w.database.rows(ctx); err != nil {
		return fmt.Errorf("read the table: %w", err)
	}
	if h.attempts, err = w.database.attempts(ctx); err != nil {
		return fmt.Errorf("read the rows' histories: %w", err)
	}
	if h.announced, err = w.database.announced(ctx); err != nil {
		return fmt.Errorf("read what is announced: %w", err)
	}
	if h.receptions, err = w.receiver.received(); err != nil {
		return fmt.Errorf("read what arrived: %w", err)
	}
	return nil
}

// shown is how many violations of one law are shown, each with its row's story.
const shown = 5

// tell fails the test with what breaks the laws.
func tell(t *testing.T, h *history, violations []violation) {
	t.Helper()
	count := map[string]int{}
	for _, v := range violations {
		if count[v.law]++; count[v.law] <= shown {
			t.Errorf("%s: %s %s\n%s", v.law, v.id, v.text, h.story(v.id))
		}
	}
	for law, n := range count {
		if n > shown {
			t.Errorf("%s: %d violations in all", law, n)
		}
	}
}

// story is all that is known of a row.
func (h *history) story(id string) string {
	if id == "" {
		return ""
	}
	var b strings.Builder
	i := slices.IndexFunc(h.facts, func(f fact) bool { return f.ID == id })
	if i >= 0 {
		f := h.facts[i]
		fmt.Fprintf(&b, "  producer: transaction %d, key %q, n %d, %s at %s, poison %q\n", f.Transaction, f.Key, f.N, f.End, clock(f.At), f.Poison)
	}
	r, there := h.rows[id]
	fmt.Fprintf(&b, "  table: there: %t, %+v\n", there, r)
	for _, text := range h.attempts[r.seq] {
		fmt.Fprintf(&b, "  history: %s\n", text)
	}
	var first, last time.Time
	for n, one := range h.receptions {
		if one.ID != id {
			continue
		}
		if first.IsZero() {
			first = one.At
		}
		last = one.At
		fmt.Fprintf(&b, "  arrival %d at %s: send %d, marked %t, epoch %d, key %q, n %d\n",
			n, clock(one.At), one.Delivery, one.Marked, one.Epoch, one.Key, one.N)
	}
	if i >= 0 && first.IsZero() {
		first, last = h.facts[i].At, h.facts[i].At
	}
	for _, a := range h.accidents {
		if a.began.Before(last.Add(10*time.Second)) && a.ended.After(first.Add(-10*time.Second)) {
			fmt.Fprintf(&b, "  accident %s – %s: %v\n", clock(a.began), clock(a.ended), a)
		}
	}
	return b.String()
}

// chronicle says what happened when, beside the daemons' logs.
func (h *history) chronicle() string {
	var b strings.Builder
	for _, a := range slices.SortedFunc(slices.Values(h.accidents), func(a, b accident) int { return a.began.Compare(b.began) }) {
		fmt.Fprintf(&b, "%s – %s: %v\n", clock(a.began), clock(a.ended), a)
	}
	for _, t := range h.takeovers {
		limit, judged := h.judged(t)
		fmt.Fprintf(&b, "%s – %s: takeover in %v, over %t, others at work %t, judged %t by %v\n", clock(t.killed), clock(t.done), t.took(), t.over, t.ready, judged, limit)
	}
	return b.String()
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }
