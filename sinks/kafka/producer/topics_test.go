package producer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A topic that does not exist stops only its own messages, at once, until it exists; after the grace they are permanent.
func TestUnknownTopic(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.UnknownTopicGrace = 700 * time.Millisecond })
	both := []*Message{message("orders", "k", "1"), message("missing", "k", "2"), message("orders", "k", "3")}
	began := time.Now()
	results := p.Produce(within(t, patience), both)
	if took := time.Since(began); took > 300*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	if results[0].Err != nil || results[2].Err != nil {
		t.Errorf("the topic that exists: %v, %v", results[0].Err, results[2].Err)
	}
	if e := results[1].Err; e == nil || e.Class != UnknownTopic || e.Unknown || e.Code != kafka.UnknownTopicOrPartition || !strings.Contains(e.Text, `"missing"`) {
		t.Errorf("the other: %+v", e)
	}
	eventually(t, "the grace ends", func() bool {
		e := p.Produce(within(t, patience), both)[1].Err
		if e == nil || e.Class != UnknownTopic && e.Class != Permanent {
			t.Fatalf("%+v", e)
		}
		return e.Class == Permanent
	})
	if time.Since(began) < 700*time.Millisecond {
		t.Error("it ended too early")
	}
	if err := c.CreateTopic("missing", 2, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the topic is found", func() bool { return p.Produce(within(t, patience), both)[1].Err == nil })
}

// Rows may name thousands of topics that do not exist: the grace of each ends all the same, and those that nobody waits for
// are not asked for.
func TestManyUnknownTopics(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.UnknownTopicGrace = 100 * time.Millisecond })
	var many []*Message
	for i := range 3000 {
		many = append(many, message(fmt.Sprint("missing-", i), "k", "1"))
	}
	eventually(t, "the grace ends", func() bool {
		ended := 0
		for start := 0; start < len(many); start += 500 {
			for _, r := range p.Produce(within(t, patience), many[start:start+500]) {
				if r.Err == nil {
					t.Fatal("written")
				}
				if r.Err.Class == Permanent {
					ended++
				}
			}
		}
		return ended == len(many)
	})
	asked := 0
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		asked = len(r.(*kmsg.MetadataRequest).Topics)
		return nil, nil, false
	})
	written(t, p.Produce(within(t, patience), numbered("orders", 1)))
	if asked != 1 {
		t.Errorf("it asked for %d topics", asked)
	}
}

// A missing topic costs one question in a while, however many ask for it.
func TestUnknownTopicIsRemembered(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs())
	asked := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Observe: true, Count: -1})
	began := time.Now()
	for range 50 {
		p.Produce(within(t, patience), []*Message{message("missing", "k", "1")})
	}
	if n, most := asked.Hits(), 2+int(time.Since(began)/missingRecheck); n > most {
		t.Errorf("%d questions, want %d at most", n, most)
	}
}

func TestInvalidTopicName(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs())
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "a/b", Err: kerr.InvalidTopicException, Count: -1})
	results := p.Produce(within(t, patience), []*Message{message("a/b", "k", "1"), message("orders", "k", "1")})
	if results[1].Err != nil || results[0].Err == nil || results[0].Err.Class != Permanent {
		t.Errorf("%+v", results)
	}
}

// A topic that the client may not see is named; the others go on, and it recovers with the permission.
func TestTopicNotAllowed(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "secret"))
	p := opened(t, c.ListenAddrs())
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "secret", Err: kerr.TopicAuthorizationFailed, Count: -1})
	messages := []*Message{message("secret", "k", "1"), message("orders", "k", "1")}
	results := p.Produce(within(t, patience), messages)
	if e := results[0].Err; results[1].Err != nil || e == nil || e.Class != Sink || e.Code != kafka.TopicAuthorizationFailed || !strings.Contains(e.Text, "grant") {
		t.Errorf("%+v", results)
	}
	fault.Remove()
	eventually(t, "the permission is noticed", func() bool { return p.Produce(within(t, patience), messages)[0].Err == nil })
}

func TestCreateTopics(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3))
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.CreateTopics = &CreateTopics{Partitions: 5, Replication: 3} })
	var messages []*Message
	for i := range 20 {
		messages = append(messages, message(fmt.Sprint("new-", i%3), fmt.Sprint(i), "v"))
	}
	var wg sync.WaitGroup
	for range 3 { // at the same time
		wg.Go(func() { written(t, p.Produce(within(t, patience), messages)) })
	}
	wg.Wait()
	if n := len(endOffsets(t.Context(), t, c.ListenAddrs(), "new-1")); n != 5 {
		t.Errorf("%d partitions, want 5", n)
	}
}

func TestCreateTopicsRefused(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.CreateTopics = &CreateTopics{} })
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	results := p.Produce(within(t, patience), []*Message{message("new", "k", "1"), message("orders", "k", "1")})
	if e := results[0].Err; results[1].Err != nil || e == nil || e.Class != Sink || !strings.Contains(e.Text, "grant this client Create") {
		t.Errorf("%+v", results)
	}
}

// New partitions are used when they are noticed; a call sees one number of partitions from its first message to its last.
func TestPartitionsGrow(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs(), func(c *Config) { c.MetadataTTL = 20 * time.Millisecond })
	written(t, p.Produce(within(t, patience), numbered("orders", 20)))
	addPartitions(t, c.ListenAddrs(), "orders", 4)
	eventually(t, "the new partitions are used", func() bool {
		results := p.Produce(within(t, patience), numbered("orders", 40))
		written(t, results)
		grown := slices.ContainsFunc(results, func(r Result) bool { return r.Partition > 0 })
		n := 1
		if grown {
			n = 4
		}
		for i, r := range results {
			if want := partitionOf(fmt.Append(nil, "key-", i%17), n); r.Partition != want {
				t.Fatalf("message %d of a call that sees %d partitions is in %d, want %d", i, n, r.Partition, want)
			}
		}
		return grown
	})
}

func addPartitions(t *testing.T, brokers []string, topic string, n int) {
	t.Helper()
	c := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: &kafka.Transport{}}
	defer c.Transport.(*kafka.Transport).CloseIdleConnections()
	r, err := c.CreatePartitions(t.Context(), &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: int32(n)}}})
	if err == nil {
		err = r.Errors[topic]
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A leader that moves is found at once, not when what is known grows old.
func TestLeaderMoves(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "orders"))
	p := opened(t, c.ListenAddrs())
	for i := range 10 {
		if err := c.MoveTopicPartition("orders", 0, int32(i%3)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		written(t, p.Produce(within(t, patience), numbered("orders", 1)))
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("move %d: recovered in %v", i, took)
		}
	}
}

// Only topics in use are asked for, never all.
func TestAsksForItsTopicsOnly(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "others"))
	var mu sync.Mutex
	var all bool
	names := map[string]bool{}
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		m := r.(*kmsg.MetadataRequest)
		all = all || m.Topics == nil || m.AllowAutoTopicCreation
		for _, topic := range m.Topics {
			names[*topic.Topic] = true
		}
		return nil, nil, false
	})
	p := opened(t, c.ListenAddrs())
	written(t, p.Produce(within(t, patience), numbered("orders", 1)))
	if err := p.Health(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if all || len(names) != 1 || !names["orders"] {
		t.Errorf("it asked for %v; for all or to create: %v", names, all)
	}
}

// Of more topics than are remembered the idle ones are forgotten, and when they are used again nothing is taken for a copy.
func TestTopicsAreForgotten(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "others"))
	p := opened(t, c.ListenAddrs())
	written(t, p.Produce(within(t, patience), []*Message{message("orders", "k", "1")}))
	eventually(t, "the lane is idle", func() bool { return !p.topics["orders"].lanes[0].busy() })
	for i := range maxTopics - 1 {
		name := fmt.Sprint("filler ", i)
		p.topics[name] = &topic{name: name, used: time.Now().Add(time.Hour), asked: true}
	}
	written(t, p.Produce(within(t, patience), []*Message{message("others", "k", "1")}))
	if p.topics["orders"] != nil || len(p.topics) != maxTopics-maxTopics/10+1 {
		t.Fatalf("%d topics, orders among them: %v", len(p.topics), p.topics["orders"] != nil)
	}
	for name, topic := range p.topics {
		if strings.HasPrefix(name, "filler") {
			topic.used = time.Time{}
		}
	}
	written(t, p.Produce(within(t, patience), []*Message{message("orders", "k", "1")}))
	if got := values(log(t, c.ListenAddrs(), "orders")[0]); got != "1 1" {
		t.Errorf("the log is %q", got)
	}
}
