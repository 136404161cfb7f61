package producer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// fake is a cluster in this process.
func fake(t testing.TB, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// opened is a producer on these brokers, closed when the test ends.
func opened(t testing.TB, brokers []string, change ...func(*Config)) *Producer {
	t.Helper()
	p := made(t, brokers, change...)
	if err := p.Open(within(t, patience)); err != nil {
		t.Fatal(err)
	}
	return p
}

func made(t testing.TB, brokers []string, change ...func(*Config)) *Producer {
	t.Helper()
	cfg := Config{Brokers: brokers, ClientID: "connectd-test", Acks: AcksAll, Idempotent: true, BackoffMin: 5 * time.Millisecond}
	for _, f := range change {
		f(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// log is what is in a topic, read by another client: by partition, in order.
func log(t testing.TB, brokers []string, topic string) map[int32][]*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ends := endOffsets(ctx, t, brokers, topic)
	from := map[int32]kgo.Offset{}
	left := int64(0)
	for p, end := range ends {
		if end > 0 {
			from[p] = kgo.NewOffset().AtStart()
			left += end
		}
	}
	records := map[int32][]*kgo.Record{}
	if left == 0 {
		return records
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for done := map[int32]bool{}; len(done) < len(from); {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read topic %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			records[r.Partition] = append(records[r.Partition], r)
			done2 := r.Offset+1 >= ends[r.Partition]
			if done2 {
				done[r.Partition] = true
			}
		})
	}
	return records
}

func endOffsets(ctx context.Context, t testing.TB, brokers []string, topic string) map[int32]int64 {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	meta := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = kmsg.StringPtr(topic)
	meta.Topics = append(meta.Topics, asked)
	about, err := meta.RequestWith(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	list := kmsg.NewPtrListOffsetsRequest()
	list.ReplicaID = -1
	wanted := kmsg.NewListOffsetsRequestTopic()
	wanted.Topic = topic
	for _, p := range about.Topics[0].Partitions {
		one := kmsg.NewListOffsetsRequestTopicPartition()
		one.Partition, one.Timestamp = p.Partition, -1
		wanted.Partitions = append(wanted.Partitions, one)
	}
	list.Topics = append(list.Topics, wanted)
	ends := map[int32]int64{}
	for _, shard := range c.RequestSharded(ctx, list) {
		if shard.Err != nil {
			t.Fatal(shard.Err)
		}
		for _, topic := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range topic.Partitions {
				if p.ErrorCode != 0 {
					t.Fatalf("end of partition %d: code %d", p.Partition, p.ErrorCode)
				}
				ends[p.Partition] = p.Offset
			}
		}
	}
	return ends
}

// written fails the test unless every message was written.
func written(t testing.TB, results []Result) {
	t.Helper()
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("message %d: %v: %v", i, r.Err.Class, r.Err)
		}
	}
}

func message(topic, key, value string) *Message {
	return &Message{Topic: topic, Key: []byte(key), Partition: ByKey, Value: []byte(value), Time: time.UnixMilli(1_700_000_000_000)}
}

func numbered(topic string, n int) []*Message {
	messages := make([]*Message, n)
	for i := range messages {
		messages[i] = message(topic, fmt.Sprint("key-", i%17), fmt.Sprint(i))
	}
	return messages
}

// proxy stands between a producer and a broker and may be told to swallow or to cut.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	pairs map[net.Conn]net.Conn
	lose  bool // what the broker answers
	hold  bool // what either side sends
	wg    sync.WaitGroup
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, pairs: map[net.Conn]net.Conn{}}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	defer p.wg.Done()
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			near.Close()
			continue
		}
		p.mu.Lock()
		p.pairs[near] = far
		p.mu.Unlock()
		p.wg.Add(2)
		go p.pump(near, far, false)
		go p.pump(far, near, true)
	}
}

func (p *proxy) pump(from, to net.Conn, answers bool) {
	defer p.wg.Done()
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		drop := p.hold || answers && p.lose
		p.mu.Unlock()
		if drop {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil && !errors.Is(err, io.EOF) {
			return
		}
	}
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for near, far := range p.pairs {
		near.Close()
		far.Close()
	}
	clear(p.pairs)
}

func (p *proxy) set(lose, hold bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.hold = lose, hold
}

// values are the records' values, in order.
func values(records []*kgo.Record) string {
	var all []string
	for _, r := range records {
		all = append(all, string(r.Value))
	}
	return strings.Join(all, " ")
}
