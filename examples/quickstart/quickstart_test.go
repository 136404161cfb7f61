package quickstart

import (
	"strings"
	"testing"

	"github.com/connectd/connectd/examples/exampletest"
)

// TestQuickstart runs the example as its reader does.
func TestQuickstart(t *testing.T) {
	out := exampletest.Run(t, nil)
	exampletest.Want(t, out,
		"orders: ok", "order 2 of bob: rolled back", "running", `order-1 for ada: order.placed {"order":1,"cents":4200}`, "order-3 for ada: order.placed",
	)
	if strings.Contains(out, "order-2 for") {
		t.Errorf("a command whose transaction was rolled back arrived:\n%s", out)
	}
}
