package postgres_test

import (
	"strings"
	"testing"

	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sourcetest"
)

func TestNoValueStopsTheOthers(t *testing.T) {
	var odd []sourcetest.Odd
	for _, column := range []string{"attempts", "deliveries", "crashes"} {
		for _, value := range []string{"2147483647", "-2147483648", "-1", "1000000001"} {
			odd = append(odd, sourcetest.Odd{Column: column, Value: value})
		}
	}
	times := []string{"'infinity'", "'-infinity'", "'4713-01-01 BC'", "'294276-12-31'", "'9999-12-31 23:59:59'", "'epoch'", "'2100-01-01'"}
	for _, value := range times {
		for _, column := range []string{"available_at", "failing_since", "published_at", "created_at"} {
			odd = append(odd, sourcetest.Odd{Column: column, Value: value})
		}
		odd = append(odd, sourcetest.Odd{Column: "deliveries, attempts, failing_since", Value: "1, 1, " + value})
	}
	odd = append(odd, sourcetest.Odd{Column: "last_error", Value: "repeat('x', 100000)"})
	sourcetest.RunOdd(t, func(t *testing.T) (sourcetest.Table, string, func(...string)) {
		cfg := postgres.Config{DSN: services.Postgres(t), Table: schemaOf(t) + ".outbox"}
		return table(t, cfg, 2), quoted(cfg), func(statements ...string) { in(t, cfg, strings.Join(statements, "; ")) }
	}, odd, times[:4])
}
