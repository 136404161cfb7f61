package postgres

import (
	"errors"
	"fmt"
	"strings"
)

// tableName is a table and its schema; the schema is "" until the server has said it.
type tableName struct{ schema, name string }

func (t tableName) String() string {
	if t.schema == "" {
		return t.name
	}
	return t.schema + "." + t.name
}

func (t tableName) quoted() string {
	if t.schema == "" {
		return quote(t.name)
	}
	return quote(t.schema) + "." + quote(t.name)
}

// parseTable reads table or schema.table, each part as it is or in double quotes.
func parseTable(text string) (tableName, error) {
	var parts []string
	rest := text
	for {
		part, after, err := cutName(rest)
		if err == nil {
			err = checkName(part)
		}
		if err != nil {
			return tableName{}, fmt.Errorf("table %q: %w", text, err)
		}
		parts = append(parts, part)
		if after == "" {
			break
		}
		rest = after[1:]
	}
	switch len(parts) {
	case 1:
		return tableName{name: parts[0]}, nil
	case 2:
		return tableName{schema: parts[0], name: parts[1]}, nil
	default:
		return tableName{}, fmt.Errorf("table %q has %d parts, must be table or schema.table (put a name that has a full stop in double quotes)", text, len(parts))
	}
}

// cutName takes one name off the front; what is left is empty or begins with a full stop.
func cutName(text string) (name, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		i := strings.IndexByte(text, '.')
		if i < 0 {
			return text, "", nil
		}
		return text[:i], text[i:], nil
	}
	for text = text[1:]; ; {
		i := strings.IndexByte(text, '"')
		if i < 0 {
			return "", "", errors.New("a double quote is not closed")
		}
		name += text[:i]
		text = text[i+1:]
		if !strings.HasPrefix(text, `"`) {
			break
		}
		name += `"`
		text = text[1:]
	}
	if text != "" && text[0] != '.' {
		return "", "", errors.New("there is something behind the closing quote")
	}
	return name, text, nil
}

// maxName is how many bytes of a name PostgreSQL keeps; it cuts longer ones without a word.
const maxName = 63

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a name is empty")
	case len(name) > maxName:
		return fmt.Errorf("the name %q is longer than %d bytes", name, maxName)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("%q cannot be a name", name)
	default:
		return nil
	}
}

// quote makes a name an SQL identifier.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// literal makes text an SQL string, whatever standard_conforming_strings says.
func literal(text string) string {
	s := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return " E" + strings.ReplaceAll(s, `\`, `\\`)
	}
	return s
}
