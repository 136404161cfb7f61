package producer

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The partitions that the Java client gives these keys, for topics of 3, 6, 10 and 12 partitions.
func TestPartitionsOfJava(t *testing.T) {
	counts := []int{3, 6, 10, 12}
	for key, want := range map[string][4]int32{
		"": {0, 3, 1, 9}, "k": {2, 2, 2, 8}, "order-1": {1, 4, 6, 10}, "foobar": {0, 0, 6, 6}, "wu": {1, 4, 0, 4},
		"customer-42": {0, 3, 3, 9}, "21": {0, 0, 0, 0}, "a-little-bit-long-string": {2, 2, 2, 8}, "Zürich": {1, 1, 3, 1},
	} {
		for i, n := range counts {
			if got := partitionOf([]byte(key), n); got != want[i] {
				t.Errorf("%q of %d: partition %d, want %d", key, n, got, want[i])
			}
		}
	}
}

// The hashes in Kafka's own test, org.apache.kafka.common.utils.UtilsTest.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
}

// Another client that claims to be like Java's agrees on every key.
func TestPartitionsOfFranz(t *testing.T) {
	theirs := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	for i := range 100_000 {
		key := fmt.Appendf(nil, "%x-%d", i*7919, i)
		if ours, want := partitionOf(key, 12), theirs.Partition(&kgo.Record{Key: key}, 12); int(ours) != want {
			t.Fatalf("%q: partition %d, want %d", key, ours, want)
		}
	}
}
