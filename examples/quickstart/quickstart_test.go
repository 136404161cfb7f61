package quickstart

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestQuickstart runs the example as its reader does.
func TestQuickstart(t *testing.T) {
	before := names(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // it builds the programs
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "run.sh").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"orders: ok", "order 2 of bob: rolled back", "running", `order-1 for ada: order.placed {"order":1,"cents":4200}`, "order-3 for ada: order.placed",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "order-2 for") {
		t.Errorf("a command whose transaction was rolled back arrived:\n%s", out)
	}
	if after := names(t); !slices.Equal(before, after) {
		t.Errorf("the example left files behind: %v, was %v", after, before)
	}
}

func names(t *testing.T) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}
