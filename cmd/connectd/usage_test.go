package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		args  string
		code  int
		words string
	}{
		{"", 2, "Usage: connectd COMMAND"},
		{"help", 0, "rows"},
		{"--help", 0, "rows"},
		{"help run", 0, "Usage: connectd run"},
		{"run --help", 0, "--http ADDR|off"},
		{"help rows", 0, "release"},
		{"rows help", 0, "release"},
		{"help rows retry", 0, "Send dead rows again"},
		{"rows", 2, "rows needs one of"},
		{"rnu", 2, `did you mean "run"?`},
		{"help rnu", 2, `did you mean "run"?`},
		{"rows lst", 2, `did you mean "list"?`},
		{"status --jsn", 2, `did you mean "--json"?`},
		{"status extra", 2, "takes no arguments"},
		{"run extra", 2, "connectd run -c extra"},
		{"check extra", 2, "connectd check -c extra"},
		{"help doctor", 0, "sends no record"},
		{"rows show", 2, "needs at least one ID"},
		{"rows list 7", 2, "connectd rows show 7"},
		{"rows list --state ded", 2, `did you mean "dead"?`},
		{"rows list --limit 0", 2, "must be 1 to"},
		{"rows list --limit x", 2, "for flag --limit"},
		{"run --http", 2, "needs an argument: --http"},
		{"check --foo", 2, "valid are -c"},
		{"init --existing maybe", 2, "pending or published"},
		{"demo --seconds 1", 2, "must be 3 to 600"},
		{"serve-sink nothing", 2, "no bundled sink"},
		{"version", 0, "connectd "},
		{"version extra", 2, "takes no arguments"},
	} {
		t.Run(c.args, func(t *testing.T) {
			connectd(t, dir, strings.Fields(c.args)...).want(t, c.code, c.words)
		})
	}
}

// TestHelpIsData: help that was asked for goes to stdout, usage that was not to stderr.
func TestHelpIsData(t *testing.T) {
	t.Parallel()
	asked := connectd(t, t.TempDir(), "help")
	if asked.stderr != "" || !strings.Contains(asked.stdout, "demo") || strings.Contains(asked.stdout, "serve-sink") {
		t.Errorf("help: %+v", asked)
	}
	if scolded := connectd(t, t.TempDir()); scolded.stdout != "" {
		t.Errorf("no command: %+v", scolded)
	}
}

// TestFlagsMayFollowOperands, as people type them; after -- nothing is a flag.
func TestFlagsMayFollowOperands(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	openShop(t, dir).insert(2, 1)
	r := connectd(t, dir, "rows", "show", "id-000001", "--json", "id-000002")
	r.want(t, 0)
	var rows []rowwork.View
	if err := json.Unmarshal([]byte(r.stdout), &rows); err != nil || len(rows) != 2 {
		t.Errorf("%v: %s", err, r.stdout)
	}
	connectd(t, dir, "rows", "show", "--", "--json").want(t, 1, `no such row with id "--json"`)
}

// TestWatchGoesOnUntilItIsStopped, and ends like the picture it last showed.
func TestWatchGoesOnUntilItIsStopped(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	ctx, cancel := context.WithCancel(t.Context())
	out := &cancelling{cancel: cancel, left: 2}
	code := run(ctx, configured(dir, []string{"status", "--watch"}), nil, out, io.Discard, func(string) (string, bool) { return "", false })
	if n := strings.Count(out.String(), "CONNECTOR"); code != 0 || n != 2 {
		t.Errorf("exit code %d, shown %d times, want 2:\n%s", code, n, out.String())
	}
}

// cancelling cancels at one of the headings that are written to it.
type cancelling struct {
	strings.Builder
	cancel context.CancelFunc
	left   int
}

func (c *cancelling) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "CONNECTOR") {
		if c.left--; c.left == 0 {
			defer c.cancel()
		}
	}
	return c.Builder.Write(p)
}
