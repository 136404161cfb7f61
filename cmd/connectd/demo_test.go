package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestDemo plays the whole show, in plain text since nobody looks.
func TestDemo(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "demo", "--seconds", "6")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"the receiver answers 401", "kill -9 the sink's process", "done already, passed over", "kill -9 connectd", "connectd has stopped, exit code 0",
		"each with the possible-duplicate mark", "1 forged and refused", "Nothing lost",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "\x1b") {
		t.Error("colours, and no terminal")
	}
}
