package postgreswebhook

import (
	"regexp"
	"slices"
	"testing"

	"github.com/connectd/connectd/examples/exampletest"
	"github.com/connectd/connectd/scripts/services"
)

// TestRun runs the example as its reader does, on a database of its own.
func TestRun(t *testing.T) {
	out := exampletest.Run(t, []string{"SHOP_DSN=" + exampletest.PostgresDatabase(t, services.Postgres(t))})
	exampletest.Want(t, out,
		"orders: ok", "running", "order eve-3: rolled back", "bob-2 (orders): dead", "headers are not a JSON object", "retried bob-2",
		`ada-1 for ada: order.placed {"order":"ada-1"}`,
	)
	arrived := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\S+) for (\w+): order\.placed`).FindAllStringSubmatch(out, -1) {
		arrived[m[2]] = append(arrived[m[2]], m[1])
	}
	for customer, want := range map[string][]string{
		"ada": {"ada-1", "ada-2", "ada-3", "ada-4"},
		"bob": {"bob-1", "bob-3", "bob-4", "bob-2"}, // the second was mended at last
		"eve": {"eve-1", "eve-2", "eve-4"},          // the third was never committed
	} {
		if !slices.Equal(arrived[customer], want) {
			t.Errorf("of %s arrived %v, want %v", customer, arrived[customer], want)
		}
	}
}
