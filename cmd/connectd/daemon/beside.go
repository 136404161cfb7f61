package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// counting counts the table beside everything else, also while the sink is away: that is when the lag matters. The
// function it returns ends that.
func (r *runner) counting(ctx context.Context, source core.Operator) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.countLag(ctx, source)
	}()
	return func() {
		cancel()
		<-done
		r.mu.Lock()
		r.lag, r.vacant, r.holdup = nil, nil, nil
		r.mu.Unlock()
	}
}

// countLag looks at the table and its leases every few seconds until ctx is done.
func (r *runner) countLag(ctx context.Context, source core.Operator) {
	tick := time.NewTicker(lagEvery)
	defer tick.Stop()
	for {
		bounded, cancel := context.WithTimeout(ctx, lagTimeout)
		lag, err := source.Lag(bounded)
		leases, leasesErr := source.Leases(bounded)
		holdup := heldBack(bounded, source)
		cancel()
		if holdup != nil && holdup.For > holdupWorthTelling && (r.holdup == nil || r.holdup.Holder != holdup.Holder) {
			r.log.Warn("rows wait for an older transaction", "rows", holdup.Rows, "transaction", holdup.Holder, "for", holdup.For)
		}
		r.mu.Lock()
		r.holdup = holdup
		if r.lag = &lag; err != nil {
			r.lag = nil
		}
		r.vacant = vacancies(r.vacant, leases, time.Now())
		if leasesErr != nil {
			r.vacant = nil
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// holdupWorthTelling is how old a transaction must be that keeps rows back for the log to name it.
const holdupWorthTelling = 10 * time.Second

// heldBack asks a source that sends in commit order what keeps rows back.
func heldBack(ctx context.Context, source core.Operator) *core.Holdup {
	ordered, ok := source.(interface {
		HeldBack(ctx context.Context) (*core.Holdup, error)
	})
	if !ok {
		return nil
	}
	holdup, err := ordered.HeldBack(ctx)
	if err != nil {
		return nil
	}
	return holdup
}

// vacancies are the partitions that nobody has leased, each with the time since when that was seen. before is what was
// seen last.
func vacancies(before map[int]time.Time, leases []core.LeaseInfo, now time.Time) map[int]time.Time {
	vacant := map[int]time.Time{}
	for _, l := range leases {
		if l.Owner != "" && l.Left > 0 {
			continue
		}
		since, known := before[l.Part]
		if !known {
			since = now
		}
		vacant[l.Part] = since
	}
	return vacant
}

// hasMoved waits until what the source has open is no longer what its configuration names, or is no longer for this
// program to work on, for sources that can say so. It returns nil when ctx is done.
func hasMoved(ctx context.Context, source core.Source) error {
	m, ok := source.(interface{ Moved() error })
	if !ok {
		return nil
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := m.Moved(); err != nil {
			return err
		}
	}
}

// useless waits until the sink's process has been away for longer than a lease while another worker is alive, who may
// have what this one lacks: of two sinks that want the same file, for one, only one gets it, and the leases must be
// where that one is. It returns false when ctx is done.
func (r *runner) useless(ctx context.Context, source core.Operator, plugin Plugin) bool {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	lastUp := time.Now()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		if plugin.Process().Up {
			lastUp = time.Now()
		} else if time.Since(lastUp) > r.Policy.Lease && r.accompanied(ctx, source) {
			return true
		}
	}
}

// accompanied says whether another worker is alive.
func (r *runner) accompanied(ctx context.Context, source core.Operator) bool {
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	workers, err := source.Workers(ctx)
	return err == nil && slices.ContainsFunc(workers, func(w core.WorkerInfo) bool {
		return w.Owner != r.owner && w.Age < r.Policy.Lease
	})
}
