package config

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// plainName says whether a database can have such a name; whether this one can, its source says. Control characters, which
// some can have, would end the comment in which `init --print` shows a name.
func plainName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// nameQuotes are what a part of a table's name may be put in, by the plugin.
var nameQuotes = map[string]byte{"postgres": '"', "mysql": '`'}

// tableParts are the parts of schema.table, without their quotes; ok is false when it cannot be read. SQLite's names have
// one part.
func (s *Source) tableParts() (parts []string, ok bool) { return s.parts(s.Table) }

// parts is tableParts of any table in the same database.
func (s *Source) parts(table string) (parts []string, ok bool) {
	quote, server := nameQuotes[s.Plugin]
	if !server {
		return []string{table}, plainName(table)
	}
	for rest := table; ; {
		var part string
		part, rest, ok = cutPart(rest, quote)
		if parts = append(parts, part); !ok || !plainName(part) {
			return parts, false
		}
		if rest == "" {
			return parts, len(parts) <= 2
		}
		rest = rest[1:]
	}
}

// cutPart takes one part off the front; what is left is empty or begins with a full stop.
func cutPart(text string, quote byte) (part, rest string, ok bool) {
	if text == "" || text[0] != quote {
		i := strings.IndexByte(text, '.')
		if i < 0 {
			return text, "", true
		}
		return text[:i], text[i:], true
	}
	for text = text[1:]; ; text = text[1:] {
		i := strings.IndexByte(text, quote)
		if i < 0 {
			return "", "", false
		}
		part += text[:i]
		if text = text[i+1:]; text == "" || text[0] != quote {
			return part, text, text == "" || text[0] == '.'
		}
		part += string(quote)
	}
}
