package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// openFake starts a cluster in this process without TLS and users.
func openFake(t testing.TB, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append(options, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func openTo(c *kfake.Cluster, others string) []byte {
	return fmt.Appendf(nil, `{"brokers": [%q]%s}`, c.ListenAddrs()[0], others)
}

// The one topic is missing: the sink waits for it, however long, and buries nothing.
func TestMissingTopic(t *testing.T) {
	c := openFake(t)
	s := opened(t, openTo(c, `, "topic": "orders"`))
	wantError(t, s.Health(soon(t)), `topic "orders" does not exist`)
	if grace := s.config.producer(true, nil).UnknownTopicGrace; grace != 0 {
		t.Errorf("its records are buried after %v", grace)
	}
	if got := delivered(t, soon(t), s, rows("a1", "1")); got != "retryable sink unknown_topic, retryable sink unknown_topic" {
		t.Fatal(got)
	}
	if err := c.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "delivered , delivered ", func() string { return delivered(t, soon(t), s, rows("a1", "1")) })
	if err := s.Health(soon(t)); err != nil {
		t.Error(err)
	}
}

// A topic that a row names is waited for, and then its records are buried; those of other topics go on.
func TestMissingTopicOfRows(t *testing.T) {
	c := openFake(t, kfake.SeedTopics(1, "orders"))
	s := opened(t, openTo(c, `, "topic": "{route}", "unknown_topic_grace": "1s"`))
	batch := rows("a1/nothing", "a2/orders", "b1/orders")
	if got := delivered(t, soon(t), s, batch); got != "retryable key unknown_topic, not_attempted behind, delivered " {
		t.Error(got)
	}
	eventually(t, "permanent unknown_topic, not_attempted behind, delivered ", func() string { return delivered(t, soon(t), s, batch) })
}

func TestCreateTopics(t *testing.T) {
	c := openFake(t)
	s := opened(t, openTo(c, `, "topic": "orders", "create_topics": {"partitions": 5}`))
	if err := s.Health(soon(t)); err != nil {
		t.Error(err)
	}
	if got := delivered(t, soon(t), s, rows("a1", "1")); got != "delivered , delivered " {
		t.Error(got)
	}
	many := opened(t, openTo(c, `, "topic": "{route}", "create_topics": {}`))
	if got := delivered(t, soon(t), many, rows("a1/bills", "1/orders")); got != "delivered , delivered " {
		t.Error(got)
	}
	if got := len(c.PartitionInfos("orders")); got != 5 {
		t.Errorf("the topic that was created has %d partitions, want 5", got)
	}
}
