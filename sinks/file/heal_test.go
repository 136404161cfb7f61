package file

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHeal opens files in the states a crash, or a person, can leave.
func TestHeal(t *testing.T) {
	line := `{"id":"a"}` + "\n"
	long := `{"id":"` + strings.Repeat("x", 200_000)
	for name, c := range map[string]struct {
		content string
		keep    int    // bytes that stay
		refuse  string // a word of the error
	}{
		"empty":                 {"", 0, ""},
		"whole":                 {line + line, 22, ""},
		"torn":                  {line + `{"id":"b","ke`, 11, ""},
		"torn in the beginning": {line + `{`, 11, ""},
		"torn line only":        {`{"id":"b`, 0, ""},
		"long torn line":        {line + long, 11, ""},
		"long torn line only":   {long, 0, ""},
		"line end at a chunk":   {line + long[:64<<10], 11, ""},
		"line end in a chunk":   {line + long[:64<<10-1], 11, ""},
		"zeros":                 {line + strings.Repeat("\x00", 5000), 11, ""},
		"only a newline":        {"\n", 1, ""},
		"foreign":               {"a photo", 0, "not written by this sink"},
		"foreign last line":     {line + "hello", 0, "not written by this sink"},
		"foreign JSON":          {line + `{"ID":"b"`, 0, "not written by this sink"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			s := configured(t, path)
			err := s.Open(t.Context())
			if c.refuse != "" {
				if err == nil || !strings.Contains(err.Error(), c.refuse) || !strings.Contains(err.Error(), path) {
					t.Errorf("Open: %v, want %q", err, c.refuse)
				}
				c.keep = len(c.content)
			} else if err != nil {
				t.Errorf("Open: %v", err)
			}
			if got, _ := os.ReadFile(path); string(got) != c.content[:c.keep] {
				t.Errorf("%d bytes are left, want %d", len(got), c.keep)
			}
		})
	}
}

// zeros is a large file without a line.
type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }

func TestHealIsBounded(t *testing.T) {
	const limit = 1 << 20
	if end, err := lastLineEnd(zeros{}, 1<<50, limit); err == nil || !strings.Contains(err.Error(), "no line ends") {
		t.Errorf("a petabyte without a line: %d, %v", end, err)
	}
	if end, err := lastLineEnd(zeros{}, limit, limit); err != nil || end != 0 {
		t.Errorf("the largest torn line: %d, %v", end, err)
	}
	if end, err := lastLineEnd(strings.NewReader("short"), 10, limit); err == nil {
		t.Errorf("a file that is shorter than it says: %d", end)
	}
}
