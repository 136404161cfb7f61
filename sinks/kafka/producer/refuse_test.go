package producer

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// What is before a refused message of its key is written, what is behind it is not sent, and what waits goes on, also when
// nothing of the batch is left.
func TestBeforeAndBehindRefused(t *testing.T) {
	for name, test := range map[string]struct {
		refused []int32
		want    string
	}{
		"in the middle": {[]int32{2}, "a1 b1 b2"},
		"the first":     {[]int32{0}, "b1 b2"},
		"the last":      {[]int32{4}, "a1 b1 a2 a3"},
		"two of a key":  {[]int32{0, 2}, "b1 b2"},
		"all":           {[]int32{0, 1, 2, 3, 4}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
			p := opened(t, c.ListenAddrs(), func(cfg *Config) { cfg.MaxBatchBytes = 20_000 })
			refuseRecords(c, test.refused...)
			var messages []*Message
			for _, m := range []string{"a1", "b1", "a2", "a3", "b2"} {
				messages = append(messages, message("orders", m[:1], m))
			}
			large := message("orders", "c", "c1"+strings.Repeat(" ", 19_800)) // in the batch after this one
			results := p.Produce(within(t, patience), append(messages, large))
			written(t, results[5:])
			permanent := 0
			for i, r := range results[:5] {
				if r.Err != nil && !r.NotSent {
					permanent++
				}
				if there := strings.Contains(test.want, string(messages[i].Value)); there != (r.Err == nil) {
					t.Errorf("message %s: %v", messages[i].Value, r.Err)
				}
			}
			if permanent == 0 {
				t.Error("nothing was refused")
			}
			if got := strings.Join(strings.Fields(values(log(t, c.ListenAddrs(), "orders")[0])), " "); got != strings.TrimSpace(test.want+" c1") {
				t.Errorf("the log is %q", got)
			}
		})
	}
}
