package demo

import (
	"context"
	"slices"
	"time"
)

// watch shows what arrives until ctx is done: a command now and then, and when a copy comes, that one; the counts each
// second.
func watch(ctx context.Context, r *receiver, s *screen, shop *shop) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var seen, copies int
	var shown time.Time
	for n := 1; ; n++ {
		fresh := r.since(seen)
		seen += len(fresh)
		again := slices.DeleteFunc(slices.Clone(fresh), func(a arrival) bool { return !a.Again })
		copies += len(again)
		if len(fresh) > 0 && (len(again) > 0 || time.Since(shown) > 700*time.Millisecond) {
			shown = time.Now()
			s.arrived(append(again, fresh[0])[0])
		}
		if n%10 == 0 {
			committed, rolledBack := shop.counts()
			s.progress(committed, rolledBack, seen-copies, copies)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
