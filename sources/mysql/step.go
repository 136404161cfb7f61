package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/connectd/connectd/core"
)

// chunk is how many rows one statement takes: enough to make its price a small part, and few enough for the optimizer to
// look at each number.
const chunk = 500

// Step settles and announces in one transaction behind the fence.
func (src *Source) Step(ctx context.Context, owner string, c core.Change) error {
	return src.transact(ctx, src.work, "step", func(tx *sql.Tx) error {
		if err := src.fence(ctx, tx, owner, c.Lease); err != nil {
			return err
		}
		if err := src.settleAll(ctx, tx, owner, c); err != nil {
			return err
		}
		if err := src.finish(ctx, tx, c); err != nil {
			return fmt.Errorf("finish batches: %w", err)
		}
		if err := src.announce(ctx, tx, c); err != nil {
			return fmt.Errorf("announce batches: %w", err)
		}
		return nil
	})
}

func (src *Source) finish(ctx context.Context, tx *sql.Tx, c core.Change) error {
	var gone, kept []int64
	for _, f := range c.Finished {
		if f.Keep {
			kept = append(kept, f.Batch)
		} else {
			gone = append(gone, f.Batch)
		}
	}
	for _, each := range []struct {
		verb    string
		batches []int64
	}{{`DELETE FROM {inflight}`, gone}, {`UPDATE {inflight} SET seqs = '[]'`, kept}} {
		if each.batches == nil {
			continue
		}
		_, err := tx.ExecContext(ctx, src.text.fill(each.verb+` WHERE tbl = ? AND part = ? AND epoch = ? AND batch IN `+list(each.batches)),
			src.s.table.name, c.Lease.Part, c.Lease.Epoch)
		if err != nil {
			return err
		}
	}
	return nil
}

// announce inserts inflight rows. One that is there already stays as it is.
func (src *Source) announce(ctx context.Context, tx *sql.Tx, c core.Change) error {
	if len(c.Announce) == 0 {
		return nil
	}
	var args []any
	for _, a := range c.Announce {
		args = append(args, src.s.table.name, c.Lease.Part, c.Lease.Epoch, a.Batch, "["+strings.Trim(list(a.Seqs), "()")+"]")
	}
	rows := strings.Repeat(", (?, ?, ?, ?, ?, {now})", len(c.Announce))[2:]
	_, err := tx.ExecContext(ctx, src.text.fill(`INSERT INTO {inflight} (tbl, part, epoch, batch, seqs, sent_at) VALUES `+rows+` ON DUPLICATE KEY UPDATE tbl = tbl`), args...)
	return err
}

// announcements are inflight rows.
type announcements struct {
	batches int
	seqs    map[int][]int64     // by partition
	sent    map[int64]core.Sent // by seq
}

// inflight reads inflight rows; which is a condition that begins with AND, or empty.
func (src *Source) inflight(ctx context.Context, q querier, which string) (announcements, error) {
	a := announcements{seqs: map[int][]int64{}, sent: map[int64]core.Sent{}}
	err := collect(ctx, q, func(rows *sql.Rows) error {
		var part int
		var text []byte
		var epoch int64
		var at instant
		if err := rows.Scan(&part, &epoch, &text, &at); err != nil {
			return err
		}
		var seqs []int64
		if err := json.Unmarshal(text, &seqs); err != nil {
			return fmt.Errorf("read an inflight row: %w", err)
		}
		a.batches++
		a.seqs[part] = append(a.seqs[part], seqs...)
		for _, seq := range seqs {
			a.sent[seq] = core.Sent{At: at.t, Epoch: epoch}
		}
		return nil
	}, src.text.fill(`SELECT part, epoch, seqs, sent_at FROM {inflight} WHERE tbl = ? `+which), src.s.table.name)
	return a, err
}

// names says whether the row is named.
func (a announcements) names(seq int64) bool {
	_, named := a.sent[seq]
	return named
}

// count is how many rows are named.
func (a announcements) count() int {
	n := 0
	for _, seqs := range a.seqs {
		n += len(seqs)
	}
	return n
}
