package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/connectd/connectd/core/layout"
)

// Config says which outbox table to read, and how.
type Config struct {
	// Path is the database file.
	Path string
	// Table is the outbox table's name, as it is: it is quoted where it is used.
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
	// BusyTimeout is how long a call waits for the file's write lock before it fails; 0 is 5 seconds.
	BusyTimeout time.Duration
}

const defaultBusyTimeout = 5 * time.Second

// dialect is how SQLite takes names.
func dialect() layout.Dialect {
	return layout.Dialect{CheckName: checkName, IgnoreCase: true, OnePartition: true}
}

func checkName(name string) error {
	if name == "" || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%q cannot be a column's name", name)
	}
	return nil
}

// Validate says what cannot work, without a look at the file.
func (cfg Config) Validate() error {
	_, err := cfg.resolve()
	return err
}

// resolve gives the mapping before the table is known: defaults for what is not mapped.
func (cfg Config) resolve() (layout.Columns, error) {
	if cfg.Path == "" || strings.HasPrefix(cfg.Path, ":memory:") {
		return layout.Columns{}, errors.New("path must name a database file")
	}
	if cfg.Table == "" || strings.HasPrefix(strings.ToLower(cfg.Table), "sqlite_") || strings.ContainsRune(cfg.Table, 0) || dialect().IsRelayTable(cfg.Table) {
		return layout.Columns{}, fmt.Errorf("table %q cannot be an outbox table's name", cfg.Table)
	}
	return cfg.Columns.Resolve(cfg.HeaderColumns, dialect())
}

// quote makes a name an SQL identifier.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// literal makes text an SQL string.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
