package engine

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// A doubled duration overflows int64 at some attempt; the ceiling must be clamped before it becomes one:
// https://github.com/qdrant/go-client/pull/153, https://github.com/onosproject/onos-lib-go/pull/127,
// https://github.com/garethgeorge/backrest/issues/618, https://github.com/riverqueue/river/pull/698
// A bound of nothing is no bound to draw from: https://github.com/hemilabs/heminetwork/issues/664
func TestJitterNeverOverflows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, limit := range []time.Duration{0, 1, time.Second, 5 * time.Minute, math.MaxInt64} {
		for n := range 2000 {
			if d := jitter(r, time.Second, limit, n); d < 0 || d > limit {
				t.Fatalf("attempt %d, limit %v: %v", n, limit, d)
			}
		}
	}
}

func TestJitterIsFullAndGrows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for n, ceiling := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for range 1000 {
			d := jitter(r, time.Second, 5*time.Second, n)
			low, high = min(low, d), max(high, d)
		}
		if low > ceiling/20 || high < ceiling*9/10 || high > ceiling {
			t.Errorf("attempt %d: between %v and %v, want 0 to %v", n, low, high, ceiling)
		}
	}
}
