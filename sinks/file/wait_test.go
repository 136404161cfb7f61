package file

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// waitFor waits until the condition holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition did not come true in 10 s")
		}
	}
}

// goroutinesIn counts the goroutines that are in a function.
func goroutinesIn(function string) int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), function+"(")
}
