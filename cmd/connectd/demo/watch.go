package demo

import (
	"context"
	"time"
)

// watch shows what arrives until ctx is done: a command now and then, each copy that does not come in a crowd, and the
// counts each second.
func watch(ctx context.Context, r *receiver, s *screen, shop *shop) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var seen, copies int
	var shown time.Time
	for n := 1; ; n++ {
		fresh := r.since(seen)
		seen += len(fresh)
		for _, a := range fresh {
			wait := 700 * time.Millisecond
			if a.Again {
				copies++
				wait = 50 * time.Millisecond
			}
			if time.Since(shown) > wait {
				shown = time.Now()
				s.arrived(a)
			}
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
