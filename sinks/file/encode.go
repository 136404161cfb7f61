package file

import (
	"unicode/utf8"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/jsonrecord"
)

// lineStart is what each line begins with; a torn last line is known by it.
const lineStart = `{"id":"`

// appendLine adds the record as one line of JSON.
func appendLine(dst []byte, r *core.Record) []byte {
	return append(jsonrecord.Append(dst, r, true, appendString), '\n')
}

func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = appendText(dst, s)
	return append(dst, '"')
}

// appendText escapes what JSON demands and nothing else; bytes that are no UTF-8 become U+FFFD, since a JSON string
// cannot hold them.
func appendText(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\uFFFD"...)
			start = i + size
		}
		i += size
	}
	return append(dst, s[start:]...)
}
