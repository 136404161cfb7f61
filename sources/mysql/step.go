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

// Step settles and announces in one transaction behind the fence. Each kind of row is written for all partitions at once.
func (src *Source) Step(ctx context.Context, owner string, changes []core.Change) error {
	if len(changes) == 0 {
		return ctx.Err()
	}
	leases := make([]core.Lease, len(changes))
	for i, c := range changes {
		leases[i] = c.Lease
	}
	return src.transact(ctx, src.work, "step", func(tx *sql.Tx) error {
		if err := src.fence(ctx, tx, owner, leases); err != nil {
			return err
		}
		if err := src.settleAll(ctx, tx, owner, changes); err != nil {
			return err
		}
		if err := src.finish(ctx, tx, changes); err != nil {
			return fmt.Errorf("finish batches: %w", err)
		}
		if err := src.announce(ctx, tx, changes); err != nil {
			return fmt.Errorf("announce batches: %w", err)
		}
		return nil
	})
}

// finish deletes or empties inflight rows.
func (src *Source) finish(ctx context.Context, tx *sql.Tx, changes []core.Change) error {
	var gone, kept []string
	for _, c := range changes {
		for _, f := range c.Finished {
			key := fmt.Sprintf(`SELECT %d connectd_part, %d connectd_epoch, %d connectd_batch`, c.Lease.Part, c.Lease.Epoch, f.Batch)
			if f.Keep {
				kept = append(kept, key)
			} else {
				gone = append(gone, key)
			}
		}
	}
	if gone != nil {
		if _, err := tx.ExecContext(ctx, src.text.deleteInflight(gone), src.s.table.name); err != nil {
			return err
		}
	}
	if kept != nil {
		if _, err := tx.ExecContext(ctx, src.text.emptyInflight(kept), src.s.table.name); err != nil {
			return err
		}
	}
	return nil
}

// inflightOf joins inflight rows to a table of their keys, so that each is looked up: a condition on the keys of several
// partitions has the server read all that are there, and wait for those of others.
func inflightOf(keys []string) string {
	return ` (` + strings.Join(keys, " UNION ALL ") + `) v STRAIGHT_JOIN {inflight} i FORCE INDEX (PRIMARY)
		ON i.tbl = ? AND i.part = connectd_part AND i.epoch = connectd_epoch AND i.batch = connectd_batch`
}

func (t texts) deleteInflight(keys []string) string {
	return t.fill(`DELETE i FROM` + inflightOf(keys))
}

func (t texts) emptyInflight(keys []string) string {
	return t.fill(`UPDATE` + inflightOf(keys) + ` SET i.seqs = '[]'`)
}

// announce inserts inflight rows. One that is there already stays as it is.
func (src *Source) announce(ctx context.Context, tx *sql.Tx, changes []core.Change) error {
	var args []any
	n := 0
	for _, c := range changes {
		for _, a := range c.Announce {
			args = append(args, src.s.table.name, c.Lease.Part, c.Lease.Epoch, a.Batch, "["+strings.Trim(list(a.Seqs), "()")+"]")
			n++
		}
	}
	if n == 0 {
		return nil
	}
	rows := strings.Repeat(", (?, ?, ?, ?, ?, {now})", n)[2:]
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
