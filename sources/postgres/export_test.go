package postgres

import (
	"context"
	"time"

	"github.com/connectd/connectd/core"
)

// FetchTexts are all forms of the fetch.
func (src *Source) FetchTexts() []string {
	return append(src.text.fetches[0][:], src.text.fetches[1][:]...)
}

// StepText is the statement of a change.
func (src *Source) StepText(c core.Change) string { return src.newStep("me", []core.Change{c}).text }

// RecoverText is the statement that counts crashes.
func (src *Source) RecoverText() string { return src.text.fill(crashed) }

// Settings are those of a session that is ours.
var Settings = settings

// Pooled says whether the source found a pooler.
func Pooled(src *Source) bool { return src.pooled }

// CountText is the statement that counts pending rows.
func (src *Source) CountText() string { return src.text.fill(countPending) }

// CountUpTo counts pending rows and due ones up to a bound of the test's own, and gives the age of the oldest of them.
func (src *Source) CountUpTo(ctx context.Context, after, bound int64) (rows, due int64, oldest time.Duration, err error) {
	t, err := src.count(ctx, src.work, after, bound)
	return t.rows, t.due, t.oldest, err
}

// CleanTexts are the statements of the cleaner.
func (src *Source) CleanTexts() (survey, remove string) {
	return src.text.fill(seen), src.text.fill(removal)
}
