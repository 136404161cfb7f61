package engine

import (
	"math"
	"math/rand/v2"
	"time"
)

// jitter returns a random duration between 0 and base doubled n times, but at most limit ("full jitter"). The ceiling
// is clamped as a float before it becomes a Duration: doubled a few dozen times, one second overflows int64.
func jitter(r *rand.Rand, base, limit time.Duration, n int) time.Duration {
	ceiling := math.Min(float64(base)*math.Pow(2, float64(max(n, 0))), float64(limit))
	if !(ceiling >= 1) {
		return 0
	}
	return time.Duration(r.Float64() * ceiling)
}

// around returns d plus or minus a tenth, so that workers who began together do not stay together.
func around(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*r.Float64()))
}
