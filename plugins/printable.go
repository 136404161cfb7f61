package plugins

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable makes untrusted text fit for logs and consoles: at most max bytes of valid UTF-8, in which control
// characters and bytes that are no UTF-8 stand as Go escapes. What is cut ends in "…".
func Printable(s string, max int) string {
	if len(s) <= max && !strings.ContainsFunc(s, isEscaped) {
		return s
	}
	const ellipsis = "…"
	b := make([]byte, 0, max)
	cut := 0 // where to end if the text turns out too long
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		piece := s[i : i+size]
		if isEscaped(r) {
			quoted := strconv.Quote(piece)
			piece = quoted[1 : len(quoted)-1]
		}
		if len(b)+len(piece) > max {
			return string(b[:cut]) + ellipsis
		}
		b = append(b, piece...)
		if len(b)+len(ellipsis) <= max {
			cut = len(b)
		}
		i += size
	}
	return string(b)
}

// isEscaped says that the rune is not shown as it is: controls, invisible format characters (which can turn a line's
// direction), and what is no UTF-8.
func isEscaped(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}
