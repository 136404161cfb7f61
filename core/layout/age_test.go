package layout_test

import (
	"slices"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// Rows of the wanted age lie behind many others, on several pages; a page starts behind the one before, and the limit ends it.
func TestRowsAreListedByAgeAPageAtATime(t *testing.T) {
	const rows = 5000
	now := time.UnixMilli(1_700_000_000_000)
	asked := 0
	list := func(f core.Filter) ([]core.RowInfo, error) {
		if f.ByAge() {
			t.Errorf("the age is asked of the database: %+v", f)
		}
		asked++
		var page []core.RowInfo
		for seq := f.After + 1; seq <= rows && len(page) < f.Limit; seq++ {
			r := core.RowInfo{Seq: seq}
			if seq != 4001 { // of which nobody knows when
				r.CreatedAt = now.Add(time.Duration(seq-rows) * time.Second)
			}
			page = append(page, r)
		}
		return page, nil
	}
	clock := func() (time.Time, error) { return now, nil }
	for _, c := range []struct {
		filter core.Filter
		seqs   []int64
		asked  int
	}{
		{core.Filter{Newer: 2 * time.Second}, []int64{4998, 4999, 5000}, 6},
		{core.Filter{Newer: 1000 * time.Second, Limit: 2}, []int64{4000, 4002}, 5},
		{core.Filter{Older: 4998 * time.Second}, []int64{1, 2}, 6},
		{core.Filter{Older: 998 * time.Second, Newer: 1000 * time.Second}, []int64{4000, 4002}, 6},
		{core.Filter{Older: time.Second, After: 3998, Limit: 3}, []int64{3999, 4000, 4002}, 1},
	} {
		asked = 0
		found, err := layout.ListByAge(c.filter, clock, list)
		if err != nil {
			t.Fatal(err)
		}
		var seqs []int64
		for _, r := range found {
			seqs = append(seqs, r.Seq)
		}
		if !slices.Equal(seqs, c.seqs) || asked != c.asked {
			t.Errorf("%+v: rows %v of %d pages, want %v of %d", c.filter, seqs, asked, c.seqs, c.asked)
		}
	}
}
