package mysql

import (
	"context"
	"fmt"

	"github.com/connectd/connectd/core"
)

// Repeated is how many transactions were run again.
func (src *Source) Repeated() int64 { return src.repeated.Load() }

// FetchText is the statement of a fetch.
func (src *Source) FetchText(part int, after int64, known []int64, exclude int) string {
	return src.text.fetch(0, part, after, known, exclude, 500)
}

// ExplainText says how the server would carry out a statement.
func (src *Source) ExplainText(ctx context.Context, query string, args ...any) (string, error) {
	return src.explain(ctx, query, args...)
}

// PublishTexts are the statements that settle published rows.
func (src *Source) PublishTexts(seqs []int64) []string {
	return []string{src.text.publish(same{}, seqs), src.text.remove(same{}, seqs)}
}

// FinishTexts are the statements that delete and empty inflight rows of some partitions; they take the table's name.
func (src *Source) FinishTexts(partitions int) []string {
	var keys []string
	for part := range partitions {
		keys = append(keys, fmt.Sprintf("SELECT %d connectd_part, 1 connectd_epoch, 2 connectd_batch", part))
	}
	return []string{src.text.deleteInflight(keys), src.text.emptyInflight(keys)}
}

// LeaseText is the statement that locks the first leases; it takes the table's name and the owner.
func (src *Source) LeaseText(partitions int) string {
	var parts []int
	for part := range partitions {
		parts = append(parts, part)
	}
	return src.text.lockLeases(parts)
}

// QueueTexts are the statements that find what a row waits behind: how many rows, and with one parameter which of its key.
func (src *Source) QueueTexts(row core.RowInfo) (count, ofKey string) {
	return src.countEarlier(row), src.firstOfKey(core.Dead, row)
}

// Session tells some of what a session has.
func (src *Source) Session(ctx context.Context) (values string, err error) {
	isolation := "@@transaction_isolation"
	if err := src.work.QueryRowContext(ctx, `SELECT @@tx_isolation`).Scan(&values); err == nil {
		isolation = "@@tx_isolation"
	}
	err = src.work.QueryRowContext(ctx, `SELECT concat_ws(' ', `+isolation+`, @@autocommit + 0, @@time_zone, @@wait_timeout, @@innodb_lock_wait_timeout, @@character_set_results)`).Scan(&values)
	return values, err
}

// CheckVersion and ParseDSN are what they are called.
var (
	CheckVersion = checkVersion
	ParseDSN     = parseDSN
)
