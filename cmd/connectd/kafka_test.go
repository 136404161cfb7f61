package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaShop is a directory with a connector from SQLite to a Kafka cluster in this process, which has no topic yet.
func kafkaShop(t *testing.T, others string) (string, *kfake.Cluster) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return shopDir(t, fmt.Sprintf(`connectors:
  orders:
    source: {plugin: sqlite, path: ./shop.db, table: outbox}
    sink: {plugin: kafka, brokers: [%q], topic: orders%s}
    delivery: {lease: 2s}
`, cluster.ListenAddrs()[0], others)), cluster
}

// consume reads n messages of the topic orders.
func consume(t *testing.T, cluster *kfake.Cluster, n int) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []*kgo.Record
	for len(got) < n && ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(m *kgo.Record) { got = append(got, m) })
	}
	return got
}

// TestKafka carries rows to Kafka: as long as the topic is missing everything waits, with a reason, and is not charged.
func TestKafka(t *testing.T) {
	t.Parallel()
	dir, cluster := kafkaShop(t, "")
	connectd(t, dir, "check").want(t, 0, "orders: ok", "to kafka")
	connectd(t, dir, "doctor").want(t, 1, `topic "orders" does not exist`, "1 problem")
	d := startDaemon(t, dir)
	d.ready()
	openShop(t, dir).insert(10, 2)
	d.eventually("the reason is shown", func() (bool, string) {
		r := connectd(t, dir, "status")
		return strings.Contains(r.stdout, `topic "orders" does not exist`), r.stdout
	})
	if err := cluster.CreateTopic("orders", 3, nil); err != nil {
		t.Fatal(err)
	}
	got := consume(t, cluster, 10)
	last := map[string]string{}
	for _, m := range got {
		id, key := string(m.Headers[0].Value), string(m.Key)
		if id <= last[key] {
			t.Errorf("key %s: %s came after %s", key, id, last[key])
		}
		last[key] = id
	}
	if len(got) != 10 || len(last) != 2 {
		t.Errorf("consumed %d messages with %d keys", len(got), len(last))
	}
	shop := openShop(t, dir)
	d.eventually("all are published", func() (bool, string) { n := shop.count("published"); return n == 10, fmt.Sprint(n) })
	var attempts int
	if err := shop.db.QueryRow("SELECT sum(attempts) FROM outbox").Scan(&attempts); err != nil || attempts != 0 {
		t.Errorf("%d attempts are charged, %v", attempts, err)
	}
	d.eventually("doctor is content", func() (bool, string) { r := connectd(t, dir, "doctor"); return r.code == 0, r.stdout })
}

// TestKafkaTombstones: a payload that is NULL removes its key from a compacted topic, an empty one does not; and a key that
// is NULL is none, an empty one is one.
func TestKafkaTombstones(t *testing.T) {
	t.Parallel()
	dir, cluster := kafkaShop(t, "")
	if err := cluster.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"('none', NULL, NULL)", "('empty', '', x'')", "('full', 'k', x'00')"} {
		if _, err := openShop(t, dir).db.Exec("INSERT INTO outbox (id, aggregateid, payload) VALUES " + row); err != nil {
			t.Fatal(err)
		}
	}
	startDaemon(t, dir).ready()
	got := map[string]string{}
	for _, m := range consume(t, cluster, 3) {
		got[string(m.Headers[0].Value)] = fmt.Sprintf("%v %q, %v %q", m.Key == nil, m.Key, m.Value == nil, m.Value)
	}
	want := map[string]string{"none": `true "", true ""`, "empty": `false "", false ""`, "full": `false "k", false "\x00"`}
	if !maps.Equal(got, want) {
		t.Errorf("keys and values are none: %v, want %v", got, want)
	}
}

// TestKafkaSettings: what is wrong is shown at its place, without the secret.
func TestKafkaSettings(t *testing.T) {
	t.Parallel()
	dir, _ := kafkaShop(t, `, acks: one`)
	connectd(t, dir, "check").want(t, 1, "connectd.yaml:4:", "sink.acks must be all")
	dir, _ = kafkaShop(t, `, sasl: {mechanism: PLAIN, password: hunter2}`)
	r := connectd(t, dir, "check")
	r.want(t, 1, "connectd.yaml:4:", "sink.sasl.username is required")
	if strings.Contains(r.stdout+r.stderr, "hunter2") {
		t.Errorf("a secret is shown: %s", r.stderr)
	}
	connectd(t, dir, "schema").want(t, 0, `"unknown_topic_grace"`)
	connectd(t, dir, "plugins", "list").want(t, 0, "kafka")
}
