package layout

import (
	"fmt"

	"github.com/connectd/connectd/core"
)

// SetContent has set write each column that an edit of the row with this id names; nil content is NULL.
func SetContent(c *Columns, id string, e core.Edit, set func(column, what string, content []byte) error) error {
	write := func(column, what string, content []byte) error {
		if column == "" {
			return &core.ContentError{ID: id, Why: "the table has no column for the " + what}
		}
		return set(column, what, content)
	}
	if e.Payload != nil {
		if err := write(c.Payload, "payload", e.Payload); err != nil {
			return err
		}
	}
	if e.Headers == nil {
		return nil
	}
	var headers []byte
	if *e.Headers != "" {
		headers = []byte(*e.Headers)
	}
	return write(c.Headers, "headers", headers)
}

// Refused is the error of a column that refuses an edit's content, with what the database says of it.
func Refused(id, column, what, said string) error {
	return &core.ContentError{ID: id, Why: fmt.Sprintf("column %s refuses the %s: %s", column, what, core.CleanText(said))}
}
