package mysql

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core/layout"
	"github.com/connectd/connectd/core/tlsfiles"
)

// Config says which outbox table to read, and how.
type Config struct {
	// DSN is user:password@tcp(host:port)/database?options as go-sql-driver takes it, or a URL
	// mysql://user:password@host:port/database?options. What the source relies on is set whatever the options say:
	// time zone, SQL mode, character set, isolation level, time-outs for locks, and how rows are counted.
	DSN string
	// TLS, when it is not nil, says that connections are encrypted and whom the server must be; the files are read again when
	// they have changed. The DSN then has no option tls.
	TLS *tlsfiles.Settings
	// Table is the outbox table's name, with its database where that is not the DSN's: table, database.table, or with
	// a part in backquotes that itself has a full stop.
	Table string
	// Columns gives the table's own names of its columns. Package outbox lists the columns, the application's and the
	// relay's, with their default names.
	Columns layout.Mapping
	// HeaderColumns are columns whose text is sent as a header, after those of the headers column. A NULL is a
	// header that is not there.
	HeaderColumns []layout.HeaderColumn
	// DeletePublished deletes a row when it is published, instead of marking it.
	DeletePublished bool
	// ToAudit opens the table although its id has lost its unique constraint: an audit must find what came of that. Nothing
	// else is to be done with such a source.
	ToAudit bool
	// MaxTransaction is how long applications' transactions that insert rows last at most; 0 is a minute. It only
	// matters where the user may not see the running transactions (the PROCESS privilege): rows of a longer one are
	// then found late, by the engine's reading from the start, and may come after later rows of their key.
	MaxTransaction time.Duration
}

const defaultMaxTransaction = time.Minute

// dialect is how the servers take names: columns have no case.
func dialect() layout.Dialect { return layout.Dialect{CheckName: checkName, IgnoreCase: true} }

// Validate says what cannot work, without a look at the server.
func (cfg Config) Validate() error {
	if _, _, err := cfg.resolve(); err != nil {
		return err
	}
	_, err := newConnector(cfg)
	return err
}

// resolve gives the names before the table is known: defaults for what is not mapped.
func (cfg Config) resolve() (tableName, layout.Columns, error) {
	table, err := parseTable(cfg.Table)
	if err != nil {
		return table, layout.Columns{}, err
	}
	if dialect().IsRelayTable(table.name) {
		return table, layout.Columns{}, fmt.Errorf("table %q cannot be an outbox table's name", cfg.Table)
	}
	if cfg.MaxTransaction < 0 {
		return table, layout.Columns{}, fmt.Errorf("the longest transaction is %v, must be positive", cfg.MaxTransaction)
	}
	cols, err := cfg.Columns.Resolve(cfg.HeaderColumns, dialect())
	return table, cols, err
}

// tableName is a table and its database; the database is "" until the server has said it.
type tableName struct{ database, name string }

func (t tableName) String() string {
	if t.database == "" {
		return t.name
	}
	return t.database + "." + t.name
}

func (t tableName) quoted() string {
	if t.database == "" {
		return quote(t.name)
	}
	return quote(t.database) + "." + quote(t.name)
}

// parseTable reads table or database.table, each part as it is or in backquotes.
func parseTable(text string) (tableName, error) {
	var parts []string
	for rest, more := text, true; more; {
		part, after, err := cutName(rest)
		if err == nil {
			err = checkName(part)
		}
		if err != nil {
			return tableName{}, fmt.Errorf("table %q: %w", text, err)
		}
		parts = append(parts, part)
		rest, more = strings.CutPrefix(after, ".")
	}
	switch len(parts) {
	case 1:
		return tableName{name: parts[0]}, nil
	case 2:
		return tableName{database: parts[0], name: parts[1]}, nil
	default:
		return tableName{}, fmt.Errorf("table %q has %d parts, must be table or database.table (put a name that has a full stop in backquotes)", text, len(parts))
	}
}

// cutName takes one name off the front; what is left is empty or begins with a full stop.
func cutName(text string) (name, rest string, err error) {
	if !strings.HasPrefix(text, "`") {
		i := strings.IndexByte(text, '.')
		if i < 0 {
			return text, "", nil
		}
		return text[:i], text[i:], nil
	}
	for text = text[1:]; ; {
		part, after, closed := strings.Cut(text, "`")
		if !closed {
			return "", "", errors.New("a backquote is not closed")
		}
		name += part
		if text = after; !strings.HasPrefix(text, "`") {
			break
		}
		name += "`"
		text = text[1:]
	}
	if text != "" && text[0] != '.' {
		return "", "", errors.New("there is something behind the closing backquote")
	}
	return name, text, nil
}

// maxName is how many characters a name may have.
const maxName = 64

// checkName refuses what the servers refuse as a name:
// https://dev.mysql.com/doc/refman/8.4/en/identifiers.html
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a name is empty")
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Errorf("the name %q is longer than %d characters", name, maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r == 0 || r > 0xffff }) || strings.HasSuffix(name, " "):
		return fmt.Errorf("%q cannot be a name", name)
	default:
		return nil
	}
}

// quote makes a name an SQL identifier.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// literal makes text an SQL string under our SQL mode, in which a backslash escapes.
func literal(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + "'"
}
