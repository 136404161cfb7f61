package outbox_test

import (
	"os"
	"strings"
	"testing"

	"github.com/connectd/connectd/core/outbox"
	"github.com/connectd/connectd/scripts/services/prepared"
)

// The page's Go is what is tested here.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/producers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "<!-- go -->\n```go\n")
	block, _, closed := strings.Cut(block, "```")
	code, err := os.ReadFile("example_test.go")
	if err != nil || !found || !closed || !strings.HasSuffix(string(code), "\n"+block) {
		t.Error("docs/producers.md and example_test.go differ:", err)
	}
	db := prepared.Postgres(t)
	db.Exec(t, "CREATE TABLE orders (id text, customer text)")
	for range 2 {
		if err := placeOrder(t.Context(), db.DB, table(t, "postgres", "outbox", outbox.Options{}), Order{"17", "ada", "t-1"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := db.Ask(t, "SELECT count(*) || ' ' || min(id) || ' ' || min(headers::text) FROM outbox") + " " + db.Ask(t, "SELECT count(*) FROM orders"); got != `1 order-placed-17 {"tenant": "t-1"} 1` {
		t.Error(got)
	}
}
