package layout

import (
	"time"

	"github.com/connectd/connectd/core"
)

// Interrupted groups rows by what core.Interrupted says of them. sent is when each row was announced, by its seq, so that one
// that several inflight rows name is counted once.
func Interrupted(worker string, sent map[int64]time.Time) map[string][]int64 {
	groups := map[string][]int64{}
	for seq, at := range sent {
		message := core.Interrupted(worker, at)
		groups[message] = append(groups[message], seq)
	}
	return groups
}
