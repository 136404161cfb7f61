package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"
)

// FetchPlan is the server's plan of the very fetch that is run for a partition, for people who look whether it is as it
// should be: an index scan of the pending rows' index, and neither a sort nor a scan of the whole table.
func (src *Source) FetchPlan(ctx context.Context, part int) (string, error) {
	var lines []string
	err := src.run(ctx, src.work, "explain the fetch", func(q querier) error {
		lines = nil
		rows, err := q.Query(ctx, `EXPLAIN (COSTS OFF) `+src.text.fetches[1][1],
			[]int32{int32(part)}, []int64{0}, int64(math.MaxInt64), []int64{500}, []int64{1}, []string{"key"}, []int64{1 << 20})
		if err != nil {
			return err
		}
		var line string
		_, err = pgx.ForEachRow(rows, []any{&line}, func() error {
			lines = append(lines, line)
			return nil
		})
		return err
	})
	return strings.Join(lines, "\n"), err
}

// CheckPlan says what is wrong with the plan of a fetch, or nil. The lines that are looked at are the plan's nodes: the
// others say conditions, with names of the application's, which may be any.
func (src *Source) CheckPlan(plan string) error {
	index := src.s.objectName("pending")
	var used, whole, sorted bool
	for i, line := range strings.Split(plan, "\n") {
		node, isNode := strings.CutPrefix(strings.TrimSpace(line), "->")
		if !isNode && i > 0 {
			continue
		}
		node = strings.TrimSpace(node)
		whole = whole || strings.HasPrefix(node, "Seq Scan") || strings.HasPrefix(node, "Parallel Seq Scan")
		sorted = sorted || strings.HasPrefix(node, "Sort") || strings.HasPrefix(node, "Incremental Sort")
		used = used || strings.Contains(node, " using "+index+" ") || strings.Contains(node, " using "+quote(index)+" ")
	}
	switch {
	case whole:
		return fmt.Errorf("the fetch reads the whole table %s", src.s.table)
	case sorted:
		return fmt.Errorf("the fetch sorts rows of table %s", src.s.table)
	case !used:
		return fmt.Errorf("the fetch does not use the index %s", index)
	default:
		return nil
	}
}
