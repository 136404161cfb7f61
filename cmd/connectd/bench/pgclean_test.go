//go:build linux

package bench

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What the cleaner removes, and what is drained beside that.
const (
	cleanedRows   = 1_000_000
	drainedBeside = 300_000
)

// benchmarkPostgresClean drains a backlog behind many rows whose retention has passed, with a cleaner and without, and lets
// the cleaner go on until it has removed them all. In the first round only.
func benchmarkPostgresClean(b *testing.B, p programs, s *server, r *report) {
	once(b, func() {
		from := pgTemplate(b, p, s, cleanedRows+drainedBeside, rowsKept, false)
		old := s.newDatabase(b, from.name)
		from.drop(b)
		old.run(b, fmt.Sprintf(`UPDATE outbox SET state = 'published', deliveries = 1, published_at = now() - interval '2 days' WHERE seq <= %d`, cleanedRows),
			`VACUUM (ANALYZE) outbox`)
		if err := old.db.Close(); err != nil {
			b.Fatal(err)
		}
		s.exec(b, `CHECKPOINT`)
		before := pgCleanBeside(b, p, old, r, "retention: {published: keep}")
		with := pgCleanBeside(b, p, old, r, "retention: {published: 24h}")
		after := pgCleanBeside(b, p, old, r, "retention: {published: keep}")
		without := (before + after) / 2
		r.add("PostgreSQL drain beside the cleaner / without", "", "", atLeast(0.8), without.Seconds()/with.Seconds())
		r.add("  rate", "beside the cleaner", "rows/s", goal{}, drainedBeside/with.Seconds())
		r.add("  rate", "without the cleaner", "rows/s", goal{}, drainedBeside/without.Seconds())
		old.drop(b)
	})
}

// pgCleanBeside says how long the drain took on a copy.
func pgCleanBeside(b *testing.B, p programs, template *database, r *report, retention string) time.Duration {
	d := template.newDatabase(b, template.name)
	defer d.drop(b)
	s := d.setup(b, p, "", nullSinkYAML, retention)
	run := s.run(b)
	defer run.stop()
	began, _, _ := run.await(connectorRuns, 0)
	const settled, cleaned = `connectd_settled_rows_total{connector="bench",state="published"}`, `connectd_cleaned_rows_total{connector="bench",state="published"}`
	var ended time.Time
	untilWithin(b, long(drainedBeside), "the backlog is drained", 20*time.Millisecond, func() bool {
		ended = time.Now()
		return s.metric(b, settled) >= drainedBeside
	})
	if strings.Contains(retention, "keep") {
		return ended.Sub(began.at)
	}
	beside := s.metric(b, cleaned)
	untilWithin(b, 2*long(cleanedRows), "all old rows are cleaned", 50*time.Millisecond, func() bool { return s.metric(b, cleaned) >= cleanedRows })
	r.add("PostgreSQL, rows cleaned", "", "rows/s", goal{}, cleanedRows/time.Since(began.at).Seconds())
	r.add("  of them during the drain", "clean", "rows", goal{}, beside)
	r.add("PostgreSQL, rows locked by the cleaner for", "longest, at most", "ms", atMost(100), longest(s.metrics(b, "connectd_clean_duration_seconds_bucket"))*1000)
	var left, counted int
	d.query(b, `SELECT (SELECT count(*) FROM outbox), (SELECT sum(count) FROM connectd_ledger)`, &left, &counted)
	if left != drainedBeside || counted != cleanedRows {
		b.Fatalf("%d rows are left and %d were counted", left, counted)
	}
	return ended.Sub(began.at)
}

// longest is the bound of the last of a histogram's buckets that has something in it.
func longest(buckets map[string]float64) float64 {
	most := 0.0
	for n := range maps.Values(buckets) {
		most = max(most, n)
	}
	bound := 0.0
	for name, n := range buckets {
		_, text, _ := strings.Cut(name, `le="`)
		le, err := strconv.ParseFloat(strings.TrimSuffix(text, `"}`), 64)
		if err == nil && n == most && (bound == 0 || le < bound) {
			bound = le
		}
	}
	return bound
}
