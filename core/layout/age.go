package layout

import (
	"time"

	"github.com/connectd/connectd/core"
)

// agePage is how many rows are read at a time when some of them are left out.
const agePage = 1000

// ListByAge lists rows where the database cannot judge their age, since a table's times of insertion may be of any kind. list
// lists the rows of a filter that does not bound it; no query of it gives more rows than are asked for, or than agePage. now is
// the database's clock, asked when it is needed.
func ListByAge(f core.Filter, now func() (time.Time, error), list func(core.Filter) ([]core.RowInfo, error)) ([]core.RowInfo, error) {
	if !f.ByAge() {
		return list(f)
	}
	clock, err := now()
	if err != nil {
		return nil, err
	}
	page := f
	page.Older, page.Newer, page.Limit = 0, 0, agePage
	var found []core.RowInfo
	for {
		rows, err := list(page)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if f.TakesAge(r.CreatedAt, clock) {
				if found = append(found, r); len(found) == f.Most() {
					return found, nil
				}
			}
		}
		if len(rows) < agePage {
			return found, nil
		}
		page.After = rows[len(rows)-1].Seq
	}
}
