package postgreskafka

import (
	"context"
	"crypto/rand"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/connectd/connectd/examples/exampletest"
	"github.com/connectd/connectd/scripts/services"
)

// TestRun runs the example as its reader does, on a database and topics of its own.
func TestRun(t *testing.T) {
	dsn, broker := exampletest.PostgresDatabase(t, services.Postgres(t)), services.Kafka(t)[0]
	out := exampletest.Run(t, []string{"SHOP_DSN=" + dsn, "KAFKA_BROKER=" + broker, "TOPIC_PREFIX=" + topics(t, broker)})
	exampletest.Want(t, out,
		"orders: ok", "running", "order eve-3: committed", "18 commands; 6 were sent again",
		"ada  order.placed  3 times", "ada  payment.wanted  3 times", "eve  payment.wanted  3 times",
	)
	first, again, partitions := map[string][]string{}, map[string][]string{}, map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)/(\d)@\d+  (\w+)  (\S+)(.*)$`).FindAllStringSubmatch(out, -1) {
		topic, partition, customer, id, mark := m[1], m[2], m[3], m[4], m[5]
		if p, ok := partitions[topic+customer]; ok && p != partition {
			t.Errorf("%s of %s is in partitions %s and %s", topic, customer, p, partition)
		}
		partitions[topic+customer] = partition
		switch mark {
		case "":
			first[topic] = append(first[topic], id)
		case "  possible duplicate  handled before: ignored":
			again[topic] = append(again[topic], id)
		default:
			t.Errorf("%s arrived with %q", id, mark)
		}
	}
	for topic, suffix := range map[string]string{"orders": "placed", "payments": "payment"} {
		for _, customer := range []string{"ada", "bob", "eve"} {
			want := []string{customer + "-1-" + suffix, customer + "-2-" + suffix, customer + "-3-" + suffix}
			if got := of(customer, first[topic]); !slices.Equal(got, want) {
				t.Errorf("of %s arrived %v for the first time, want %v", customer, got, want)
			}
			if got := of(customer, again[topic]); !slices.Equal(got, want[1:2]) {
				t.Errorf("of %s arrived %v again, want %v", customer, got, want[1:2])
			}
		}
	}
}

func of(customer string, ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.HasPrefix(id, customer+"-") })
}

// topics returns the beginning of this test's topics, which are removed at its end.
func topics(t *testing.T, broker string) string {
	t.Helper()
	prefix := "connectd-example-" + strings.ToLower(rand.Text()) + "."
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		client := &kafka.Client{Addr: kafka.TCP(broker)}
		if _, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{prefix + "consumer"}}); err != nil {
			t.Error(err)
		}
		r, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{prefix + "orders", prefix + "payments"}})
		if err != nil {
			t.Fatal(err)
		}
		for err := range maps.Values(r.Errors) {
			if err != nil {
				t.Error(err)
			}
		}
	})
	return prefix
}
