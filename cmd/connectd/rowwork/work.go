package rowwork

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

const (
	pageSize      = 1000             // rows read at once
	changeTimeout = 30 * time.Second // for one row
	listTimeout   = 5 * time.Minute  // for one page: rows of a rare kind may be far apart
	giveUp        = 10               // rows one after the other that failed because of the database
)

// Work is what a person wants done to rows of one outbox table: to those that were picked, and to those that the filter
// takes. They are changed in seq order, so that rows of one key are sent in theirs, each once and by itself: one that
// cannot be changed does not stop the others, and a daemon may be at work meanwhile.
type Work struct {
	Connector string
	Rows      core.Operator
	Verb      Verb
	Picked    []core.RowInfo
	// Filter takes those rows that the verb is for, too; nil: none. Its After and UpTo count, its Limit does not.
	Filter  *core.Filter
	By, Why string    // for the history; Why is cut at core.MaxErrorText
	Edit    core.Edit // other content for the one row that is retried
	DryRun  bool      // say what would be changed, and change nothing
	Limit   int       // rows at most; 0: all

	page int // rows read at once; 0: pageSize
}

// Result is what became of one row. Its error is of the row when OfRow says so.
type Result struct {
	Row     core.RowInfo
	Err     error
	Warning string // what a person should know all the same
}

// Summary is what became of all.
type Summary struct {
	Changed, Failed int
	More            bool  // there are more rows to go on with,
	After           int64 // behind the row of this seq
}

// Do does the work and reports each row. It ends early, with More, at the limit and when report returns false; and with
// an error when ctx is done or the database fails. What was reported is done all the same.
func (w *Work) Do(ctx context.Context, report func(Result) bool) (Summary, error) {
	var s Summary
	goOn, failures := true, 0
	named := map[int64]bool{}
	for _, row := range w.Picked {
		named[row.Seq] = true
	}
	for row, err := range w.rows(ctx) {
		if err != nil {
			return s, err
		}
		if !goOn || w.Limit > 0 && s.Changed+s.Failed == w.Limit {
			s.More = true
			break
		}
		r := w.one(ctx, row, named[row.Seq])
		s.After = row.Seq
		switch {
		case r.Err == nil:
			s.Changed++
			failures = 0
		case OfRow(r.Err):
			s.Failed++
			failures = 0
		default:
			s.Failed++
			failures++
		}
		goOn = report(r)
		if err := ctx.Err(); err != nil {
			return s, fmt.Errorf("stopped at seq %d: %w", row.Seq, err)
		}
		if failures == giveUp {
			return s, fmt.Errorf("stopped at seq %d: the last %d rows failed alike: %w", row.Seq, giveUp, r.Err)
		}
	}
	return s, nil
}

// one changes one row. One that a consumer has done is sent again only if it was named.
func (w *Work) one(ctx context.Context, row core.RowInfo, named bool) Result {
	r := Result{Row: row}
	var warnings []string
	if w.Verb != Skip {
		by, err := w.doneBy(ctx, row)
		switch {
		case err != nil && !named:
			r.Err = err
		case err != nil:
			warnings = append(warnings, ErrReceiptsUnread.Error())
		case by != "" && !named:
			r.Err = &DoneError{ID: row.ID, By: by}
		case by != "":
			warnings = append(warnings, by+" has done it, and it is sent again all the same, for it was named")
		}
	}
	if r.Err == nil {
		r.Err = w.change(ctx, row)
	}
	if r.Err != nil {
		return r
	}
	if n := Sends(row); n > 0 && !w.Edit.Empty() {
		warnings = append(warnings, fmt.Sprintf("the destination may have an earlier version under the same id (sends known or possible: %d), and a consumer that has handled that id will not handle it again", n))
	}
	r.Warning = strings.Join(warnings, "; ")
	return r
}

// ErrReceiptsUnread is why a row that was not named is left as it is.
var ErrReceiptsUnread = errors.New("whether a consumer has done it could not be read")

// doneBy is the consumer that has reported the row done, "" for none.
func (w *Work) doneBy(ctx context.Context, row core.RowInfo) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	trace, err := w.Rows.Trace(ctx, row.ID)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrReceiptsUnread, err)
	}
	by, _ := Done(trace.Receipts)
	return by, nil
}

// Done names the first consumer that has reported a command done.
func Done(receipts []core.Receipt) (by string, done bool) {
	for _, r := range receipts {
		switch {
		case r.Status != core.ReceiptDone:
		case r.Consumer == "":
			return "a consumer", true
		default:
			return fmt.Sprintf("consumer %q", r.Consumer), true
		}
	}
	return "", false
}

// DoneError says that a consumer has reported a row done, so that it is not sent again unless it is named.
type DoneError struct{ ID, By string }

func (e *DoneError) Error() string {
	return "row " + e.ID + " is left as it is, for " + e.By + " has done it: skip it, or name it by its id to send it again"
}

// OfRow says that an error is about the row and not about the database: nothing was changed.
func OfRow(err error) bool {
	var state *core.StateError
	var content *core.ContentError
	var done *DoneError
	return errors.Is(err, core.ErrNoRow) || errors.As(err, &state) || errors.As(err, &done) || errors.As(err, &content)
}

func (w *Work) change(ctx context.Context, row core.RowInfo) error {
	if w.DryRun {
		if !w.Edit.Empty() {
			if err := w.Edit.Check(row.ID); err != nil {
				return err
			}
		}
		return layout.Allow(row.ID, row.State, w.Verb.From()...)
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	act := core.Act{ID: row.ID, By: w.By, Why: w.Why}
	switch {
	case !w.Edit.Empty():
		return w.Rows.Edit(ctx, act, w.Edit)
	case w.Verb == Retry:
		return w.Rows.Retry(ctx, act)
	case w.Verb == Skip:
		return w.Rows.Skip(ctx, act)
	default:
		return w.Rows.ReleaseRow(ctx, act)
	}
}

// rows are the rows to change, each once and in seq order. Those of the filter are read page by page, as the work goes on.
func (w *Work) rows(ctx context.Context) iter.Seq2[core.RowInfo, error] {
	return func(yield func(core.RowInfo, error) bool) {
		picked := ordered(w.Picked)
		for after, more := int64(0), w.Filter != nil; more; {
			page, full, err := w.next(ctx, max(after, w.Filter.After))
			if err != nil {
				yield(core.RowInfo{}, err)
				return
			}
			n := len(picked)
			if more = full; more {
				after = page[len(page)-1].Seq
				n, _ = slices.BinarySearchFunc(picked, after+1, func(r core.RowInfo, seq int64) int { return cmp.Compare(r.Seq, seq) })
			}
			for _, row := range ordered(picked[:n], page) {
				if !yield(row, nil) {
					return
				}
			}
			picked = picked[n:]
		}
		for _, row := range picked {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// next reads the next rows of the filter that the verb is for, of each state as many as there is place for. full says
// that there may be more.
func (w *Work) next(ctx context.Context, after int64) (page []core.RowInfo, full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	f := *w.Filter
	if f.After, f.Limit = after, cmp.Or(w.page, pageSize); w.Limit > 0 {
		f.Limit = min(f.Limit, w.Limit+1)
	}
	for _, f.State = range w.Verb.From() {
		if w.Filter.State != "" && w.Filter.State != f.State {
			continue
		}
		list, err := w.Rows.List(ctx, f)
		if err != nil {
			return nil, false, fmt.Errorf("list rows that are %s: %w", f.State, err)
		}
		page = append(page, list...)
	}
	page = ordered(page)
	if full = len(page) >= f.Limit; full {
		page = page[:f.Limit]
	}
	return page, full, nil
}

// ordered are the rows of the lists in seq order, each once.
func ordered(lists ...[]core.RowInfo) []core.RowInfo {
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b core.RowInfo) int { return cmp.Compare(a.Seq, b.Seq) })
	return slices.CompactFunc(all, func(a, b core.RowInfo) bool { return a.Seq == b.Seq })
}
