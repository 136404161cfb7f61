package mysql

import "context"

// Repeated is how many transactions were run again.
func (src *Source) Repeated() int64 { return src.repeated.Load() }

// FetchText is the statement of a fetch.
func (src *Source) FetchText(part int, after int64, known []int64, exclude int) string {
	return src.text.fetch(part, after, known, exclude, 500)
}

// ExplainText says how the server would carry out a statement.
func (src *Source) ExplainText(ctx context.Context, query string, args ...any) (string, error) {
	return src.explain(ctx, query, args...)
}

// PublishTexts are the statements that settle published rows.
func (src *Source) PublishTexts(seqs []int64) []string {
	return []string{src.text.publish(same{}, seqs), src.text.remove(same{}, seqs)}
}

// CheckVersion and ParseDSN are what they are called.
var (
	CheckVersion = checkVersion
	ParseDSN     = parseDSN
)
