package settings

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/connectd/connectd/core"
)

// Problems collects what is wrong, or dubious, with settings whose single values are right. Their messages are as those
// of Decode: what follows the name of the setting in a sentence, without its value.
type Problems []core.Diagnostic

// Wrong adds a reason to refuse the settings.
func (p *Problems) Wrong(pointer, format string, args ...any) {
	*p = append(*p, core.Diagnostic{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
}

// WrongIf is Wrong if bad.
func (p *Problems) WrongIf(bad bool, pointer, format string, args ...any) {
	if bad {
		p.Wrong(pointer, format, args...)
	}
}

// Warn adds what is worth saying but no reason to refuse.
func (p *Problems) Warn(pointer, message string) {
	*p = append(*p, core.Diagnostic{Pointer: pointer, Message: message, Warning: true})
}

// Add adds problems that others have found.
func (p *Problems) Add(others []core.Diagnostic) { *p = append(*p, others...) }

// Refused reports whether one of them is no mere warning.
func (p Problems) Refused() bool {
	return slices.ContainsFunc(p, func(d core.Diagnostic) bool { return !d.Warning })
}

// Path checks the path of a file after Absolute; "" is none.
func (p *Problems) Path(pointer, path string) {
	switch {
	case strings.ContainsRune(path, 0):
		p.Wrong(pointer, "must not contain a NUL character")
	case path != "" && !filepath.IsAbs(path):
		p.Wrong(pointer, "must be absolute, beginning with /")
	}
}

// Absolute makes each path that is not absolute relative to dir, unless it or dir is "".
func Absolute(dir string, paths ...*string) {
	for _, path := range paths {
		if dir != "" && *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
}

// Name is the setting at an RFC 6901 pointer as texts call it, with dots between its parts.
func Name(pointer string) string {
	return strings.NewReplacer("/", ".", "~1", "/", "~0", "~").Replace(strings.TrimPrefix(pointer, "/"))
}
