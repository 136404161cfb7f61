//go:build linux

package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// result is what was seen of one pair.
type result struct {
	pair                  pair
	source, clock, target string // with their versions

	committed, rolledBack, unanswered, found int // rows; found are unanswered ones that the table has
	poison, transactions                     int
	arrivals, repeats, late                  int // late: the first send of a row, after another one
	accidents                                map[what]int
	starts                                   int
	all, judged                              []time.Duration // takeovers, in order; judged ones nothing else disturbed
	allowed                                  time.Duration   // the longest that one of them might have taken
	settled                                  time.Duration
	broken                                   map[string]int // law → violations
}

func summarize(p pair, h *history, violations []violation) *result {
	r := &result{pair: p, arrivals: len(h.receptions), repeats: len(h.repeats()), accidents: map[what]int{}, broken: map[string]int{}}
	for _, f := range h.facts {
		r.transactions = max(r.transactions, f.Transaction)
		_, there := h.rows[f.ID]
		switch f.End {
		case committed:
			r.committed++
		case rolledBack:
			r.rolledBack++
		default:
			r.unanswered++
			if there {
				r.found++
			}
		}
		if f.Poison != "" && there {
			r.poison++
		}
	}
	seen := map[string]bool{}
	for _, one := range h.receptions {
		if seen[one.ID] && !one.Marked {
			r.late++
		}
		seen[one.ID] = true
	}
	for _, a := range h.accidents {
		r.accidents[a.what]++
	}
	for _, v := range violations {
		r.broken[v.law]++
	}
	r.all, r.judged = h.times()
	for _, t := range h.takeovers {
		if limit, ok := h.judged(t); ok {
			r.allowed = max(r.allowed, limit)
		}
	}
	return r
}

// describe asks the database what it is and what its clock says.
func (d *database) describe(ctx context.Context, r *result) error {
	var version string
	if err := d.db.QueryRowContext(ctx, d.version).Scan(&version); err != nil {
		return fmt.Errorf("ask the database's version: %w", err)
	}
	words := strings.Fields(version)
	r.source, r.clock = strings.Join(words[:min(2, len(words))], " "), "the machine's"
	if r.pair.clock != 0 {
		r.clock = fmt.Sprintf("%s, in the end %s (%s)", off(r.pair.clock), off(d.clock), d.servers.Clock())
	}
	return nil
}

// off says how far off a clock is.
func off(by time.Duration) string {
	if by < 0 {
		return (-by).Round(time.Second/10).String() + " slow"
	}
	return by.Round(time.Second/10).String() + " fast"
}

func (r *result) String() string {
	return fmt.Sprintf("%v, %s, clock %s, to %s: %d rows committed, %d rolled back, %d unanswered of which %d are there, %d poison; %d arrivals, %d repeats, %d late; "+
		"%d starts, takeovers %v, undisturbed %v, %v allowed; settled after %v; %v", r.pair, r.source, r.clock, r.target, r.committed, r.rolledBack, r.unanswered, r.found, r.poison,
		r.arrivals, r.repeats, r.late, r.starts, r.all, r.judged, r.allowed, r.settled.Round(time.Millisecond), r.accidents)
}

// perAccident is the mean of the repeats for each accident that may cause any.
func (r *result) perAccident() string {
	n := 0
	for w, count := range r.accidents {
		if (accident{what: w}).cost(limits{daemons: 1, inFlight: 1, records: 1}) > 0 {
			n += count
		}
	}
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", float64(r.repeats)/float64(n))
}

// allowance is the longest time that was allowed for a takeover because things were late.
func (r *result) allowance() string {
	if len(r.judged) == 0 {
		return "–"
	}
	return fmt.Sprint(r.allowed.Round(10 * time.Millisecond))
}

func (r *result) count(w what) string {
	if n := r.accidents[w]; n > 0 {
		return fmt.Sprint(n)
	}
	return "–"
}

// at is a quantile of sorted times, "–" of none.
func at(sorted []time.Duration, part, of int) string {
	if len(sorted) == 0 {
		return "–"
	}
	return fmt.Sprint(sorted[(len(sorted)-1)*part/of].Round(10 * time.Millisecond))
}
