package sqlite_test

import (
	"strings"
	"testing"

	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

// SQLite keeps a value of any type in a column of any other.
func TestNoValueStopsTheOthers(t *testing.T) {
	values := []string{"x'ff'", "x''", "'abc'", "''", "1.5", "1e300", "-1e300", "9e999", "-1", "-9223372036854775808", "9223372036854775807", "2147483647", "1", "1e12", "'2026-01-01'"}
	var odd []sourcetest.Odd
	for _, column := range []string{"available_at", "attempts", "deliveries", "crashes", "failing_since", "published_at", "created_at", "last_error"} {
		for _, value := range values {
			odd = append(odd, sourcetest.Odd{Column: column, Value: value})
		}
	}
	for _, value := range values {
		odd = append(odd, sourcetest.Odd{Column: "deliveries, attempts, failing_since", Value: "1, 1, " + value})
	}
	sourcetest.RunOdd(t, func(t *testing.T) (sourcetest.Table, string, func(...string)) {
		cfg := sqlite.Config{Path: file(t), Table: "outbox", BusyTimeout: patient}
		return table(t, cfg), "outbox", func(statements ...string) { execute(t, cfg.Path, "BEGIN; "+strings.Join(statements, "; ")+"; COMMIT") }
	}, odd, []string{"-9223372036854775808", "9223372036854775807", "1e300", "-1e300", "9e999", "1.5", "x'ff'", "'abc'", "-1", "0"})
}
