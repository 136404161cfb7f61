package config_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestBounds(t *testing.T) {
	laughs := "x: &a0 [lol, lol, lol, lol, lol, lol, lol, lol]\n"
	for i := range 12 {
		laughs += fmt.Sprintf("y%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i+1, i, i, i, i, i, i, i, i)
	}
	chain := "x: &a0 [" + strings.Repeat("[", 40) + strings.Repeat("]", 41) + "\ny: [" + strings.Repeat("[", 40) + "*a0" + strings.Repeat("]", 41) + "\n"
	stairs := ""
	for i := range 80 {
		stairs += strings.Repeat(" ", i) + "k:\n"
	}
	for name, c := range map[string]struct{ yaml, says string }{
		"flow":       {strings.Repeat("[", 100_000), "c.yaml:1:65: the YAML is nested deeper than 64"},
		"flow maps":  {strings.Repeat("{a: ", 50_000), "the YAML is nested deeper than 64"},
		"entries":    {strings.Repeat("- ", 100_000), "c.yaml:1:129: the YAML is nested deeper than 64"},
		"questions":  {strings.Repeat("? ", 100_000), "the YAML is nested deeper than 64"},
		"indents":    {stairs, "is nested deeper than 64"},
		"deep alias": {chain, "is nested deeper than 64 with its aliases"},
		"aliases":    {laughs, "is larger than 4194304 bytes with its aliases and variables"},
		"large file": {strings.Repeat("# x\n", 300_000), "c.yaml: cannot read the file: c.yaml is larger than 1048576 bytes"},
	} {
		got := strings.Join(problems(t, c.yaml, env()), "\n")
		if !strings.Contains(got, c.says) {
			t.Errorf("%s: got %.1000s", name, got)
		}
	}
}
