package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// Explain asks the server how it would carry out the very statement of a fetch, in words: the index it uses and what it
// does beside. doctor shows it; a plan that sorts, or uses another index than connectd_pending, reads more than it should.
func (src *Source) Explain(ctx context.Context) (string, error) {
	var plan string
	err := src.try(ctx, "explain", func() error {
		var err error
		plan, err = src.explain(ctx, src.text.fetch(0, 0, 0, []int64{1, 2}, 0, 500))
		return err
	})
	return plan, err
}

// explain gives each table's access: type, index and extras.
func (src *Source) explain(ctx context.Context, query string, args ...any) (string, error) {
	rows, err := src.work.QueryContext(ctx, "EXPLAIN FORMAT=TRADITIONAL "+query, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	var lines []string
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return "", err
		}
		said := map[string]string{}
		for i, name := range columns {
			said[strings.ToLower(name)] = values[i].String
		}
		lines = append(lines, fmt.Sprintf("%s: %s by %s; %s", said["table"], said["type"], said["key"], said["extra"]))
	}
	return strings.Join(lines, "\n"), rows.Err()
}
