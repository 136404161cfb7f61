package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// Step settles and announces in one transaction behind the fence.
func (src *Source) Step(ctx context.Context, owner string, changes []core.Change) error {
	if len(changes) == 0 {
		return ctx.Err()
	}
	announces := func(c core.Change) bool { return len(c.Announce) > 0 }
	if slices.ContainsFunc(changes, announces) && src.Moved() != nil { // the rows may have been read from the other file
		return core.ErrLeaseNotOwned
	}
	return src.transact(ctx, "step", func(tx *sql.Tx) error {
		for _, c := range changes {
			if err := src.fence(ctx, tx, owner, c.Lease); err != nil {
				return err
			}
		}
		for _, c := range changes {
			if err := src.carryOut(ctx, tx, owner, c); err != nil {
				return err
			}
		}
		return nil
	})
}

func (src *Source) carryOut(ctx context.Context, tx *sql.Tx, owner string, c core.Change) error {
	if err := src.settleAll(ctx, tx, owner, c.Settle); err != nil {
		return err
	}
	for _, f := range c.Finished {
		st := src.st.finish
		if f.Keep {
			st = src.st.empty
		}
		if _, err := tx.StmtContext(ctx, st).ExecContext(ctx, src.s.table, c.Lease.Part, c.Lease.Epoch, f.Batch); err != nil {
			return fmt.Errorf("finish batch %d: %w", f.Batch, err)
		}
	}
	for _, a := range c.Announce {
		_, err := tx.StmtContext(ctx, src.st.announce).ExecContext(ctx, src.s.table, c.Lease.Part, c.Lease.Epoch, a.Batch, jsonSeqs(a.Seqs))
		if err != nil {
			return fmt.Errorf("announce batch %d: %w", a.Batch, err)
		}
	}
	return nil
}

// same is what published rows have in common that one statement can settle.
type same struct{ deliveries, attempts, crashes int }

// settleAll writes published rows by the group, all others one by one.
func (src *Source) settleAll(ctx context.Context, tx *sql.Tx, owner string, list []core.Settlement) error {
	groups := map[same][]int64{}
	for i := range list {
		s := &list[i]
		if s.State == core.Published {
			g := same{s.Deliveries, s.Attempts, s.Crashes}
			groups[g] = append(groups[g], s.Seq)
			continue
		}
		if err := src.settle(ctx, tx, owner, s); err != nil {
			return fmt.Errorf("settle row %d: %w", s.Seq, err)
		}
	}
	for g, seqs := range groups {
		if err := src.publish(ctx, tx, g, seqs); err != nil {
			return fmt.Errorf("settle %d published rows: %w", len(seqs), err)
		}
	}
	return nil
}

// publish marks or deletes a group of rows in one statement. Rows that lie close together, as a batch's do with gaps
// where keys were busy, are walked from the first to the last, which costs less than a list.
func (src *Source) publish(ctx context.Context, tx *sql.Tx, g same, seqs []int64) error {
	if !slices.IsSorted(seqs) {
		slices.Sort(seqs)
	}
	var total int64
	exec := func(st *sql.Stmt, args ...any) error {
		res, err := tx.StmtContext(ctx, st).ExecContext(ctx, append([]any{g.deliveries, g.attempts, g.crashes}, args...)...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		total += n
		return err
	}
	first, last := seqs[0], seqs[len(seqs)-1]
	var err error
	switch span := last - first + 1; {
	case span == int64(len(seqs)):
		err = exec(src.st.publishRange, first, last)
	case span <= int64(len(seqs))*maxSpread:
		err = exec(src.st.publishSpan, first, last, mask(seqs))
	default:
		err = exec(src.st.publishSet, jsonSeqs(seqs))
	}
	if err != nil {
		return err
	}
	if !src.deletePublished || total == 0 {
		return nil
	}
	return src.cleaned(ctx, tx, g, seqs, total)
}

// maxSpread is how many rows may be walked over for each one that is meant, before a list is cheaper.
const maxSpread = 8

// mask has a 1 for each of the ascending seqs, by its distance to the first, and zeros between them.
func mask(seqs []int64) []byte {
	m := make([]byte, seqs[len(seqs)-1]-seqs[0]+1)
	for _, seq := range seqs {
		m[seq-seqs[0]] = 1
	}
	return m
}

// cleaned books deleted rows in the ledger and drops their history and their revisions.
func (src *Source) cleaned(ctx context.Context, tx *sql.Tx, g same, seqs []int64, total int64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO connectd_ledger (tbl, day, state, count) VALUES (?, date('now'), 'published', ?)
		ON CONFLICT DO UPDATE SET count = count + excluded.count`, src.s.table, total)
	if err != nil || g.deliveries == 0 {
		return err // a row never written before has no history
	}
	list := jsonSeqs(seqs)
	for _, beside := range []string{"connectd_attempt", "connectd_revision"} {
		if _, err := tx.ExecContext(ctx, src.text.fill(`DELETE FROM `+beside+` WHERE tbl = ?1 AND seq IN (SELECT value FROM json_each(?2))
			AND NOT EXISTS (SELECT 1 FROM {table} WHERE {order} = `+beside+`.seq)`), src.s.table, list); err != nil {
			return err
		}
	}
	return nil
}

// settle writes one row and its history. A row found changed is left alone.
func (src *Source) settle(ctx context.Context, tx *sql.Tx, owner string, s *core.Settlement) error {
	var lastError any
	if s.Failure != nil {
		lastError = layout.ErrorText(s.Failure)
	}
	delay := s.Delay.Milliseconds()
	if s.Delay > 0 {
		delay = max(delay, 1)
	}
	res, err := tx.StmtContext(ctx, src.st.settle).ExecContext(ctx, s.Deliveries, s.Attempts, s.Crashes, s.Seq, string(s.State), delay, lastError)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil || n == 0 || s.Failure == nil {
		return err
	}
	return src.note(ctx, tx, entry{seq: s.Seq, by: owner, failure: *s.Failure})
}

// entry is one line of a row's history, to be written when the row has been.
type entry struct {
	seq     int64
	by      string
	failure core.Failure
}

// note writes a line of history, with the row's deliveries as they stand (0 for what was not sent), and keeps no more than the newest lines.
func (src *Source) note(ctx context.Context, tx *sql.Tx, e entry) error {
	var n int64
	err := tx.StmtContext(ctx, src.st.note).QueryRowContext(ctx,
		src.s.table, e.seq, core.CleanText(e.failure.Code), core.CleanText(e.failure.Message), core.CleanText(e.by), e.failure.Duration.Milliseconds(), !e.failure.Unsent).Scan(&n)
	if err != nil {
		return fmt.Errorf("note a failure: %w", err)
	}
	if n <= core.MaxHistory {
		return nil
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM connectd_attempt WHERE tbl = ? AND seq = ? AND n <= ?`, src.s.table, e.seq, n-core.MaxHistory)
	return err
}
