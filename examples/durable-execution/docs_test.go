package durableexecution

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// documented wants each block of commands and output of docs/pitfalls.md to be what was printed, line by line and in that
// order; lines may have been left out, and "…" is what differs from run to run.
func documented(t *testing.T, printed string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/pitfalls.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for part := range strings.SplitSeq(string(page), "\n```console\n") {
		block, _, found := strings.Cut(part, "```")
		if !found || strings.HasPrefix(part, "# ") {
			continue
		}
		n++
		var pattern strings.Builder
		pattern.WriteString(`(?m)`)
		for line := range strings.Lines(block) {
			pattern.WriteString(`^` + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSuffix(line, "\n")), "…", ".*") + `$\n(?:.*\n)*?`)
		}
		if !regexp.MustCompile(pattern.String()).MatchString(printed) {
			t.Errorf("docs/pitfalls.md shows what was not printed:\n%s", block)
		}
	}
	if n < 11 {
		t.Errorf("docs/pitfalls.md has %d blocks", n)
	}
}
