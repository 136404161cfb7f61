package producer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/connectd/connectd/scripts/services"
)

// A broker that is killed and comes back in the middle of calls loses nothing and keeps each key's order; of no message are
// there more copies than results that said that it may be written, be the messages new or older than brokers remember.
func TestRealBrokerKilled(t *testing.T) {
	own := services.Own(t, "kafka")
	brokers := own.Kafka()
	topic := newTopic(t, brokers, 3)
	p := opened(t, brokers, func(c *Config) { c.RequestTimeout = 2 * time.Second })
	memory := newMemory(t, p, newTopic(t, brokers, 1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var said diary
	counts := make([]atomic.Int64, 6)
	for caller := range counts {
		age := time.Duration(caller%2) * 48 * time.Hour
		wg.Go(func() {
			key := fmt.Sprint("caller-", caller)
			for ctx.Err() == nil {
				m := message(topic, key, key+":"+strconv.FormatInt(counts[caller].Load(), 10))
				m.Time = time.Now().Add(-age)
				for {
					r := p.Produce(within(t, patience), []*Message{m})[0]
					said.note(string(m.Value), r)
					if r.Err == nil {
						break
					}
					if r.Err.Class != Retry && r.Err.Class != Sink {
						t.Errorf("%v: %v", r.Err.Class, r.Err)
					}
					sleep(t.Context(), 20*time.Millisecond)
				}
				counts[caller].Add(1)
			}
		})
	}
	rounds := func() {
		before := counts[0].Load()
		eventually(t, "it goes on", func() bool { return counts[0].Load() > before+20 })
	}
	rounds()
	memory.fill(t)
	own.Kill("kafka")
	own.Start("kafka")
	memory.check(t)
	rounds()
	own.Stop("kafka")
	own.Start("kafka")
	rounds()
	cancel()
	wg.Wait()
	total := 0
	for i := range counts {
		total += int(counts[i].Load())
	}
	copies := checkLog(t, brokers, topic, total)
	said.check(t, log(t, brokers, topic))
	t.Logf("%d messages, %d copies, %d unknown", total, copies, said.unknown(""))
}

// memory shows what the broker remembers when it is started again, of two producers whose batches were of different times.
type memory struct {
	p        *Producer
	topic    string
	new, old numbering
}

func newMemory(t *testing.T, p *Producer, topic string) *memory {
	t.Helper()
	m := &memory{p: p, topic: topic}
	written(t, p.Produce(within(t, patience), []*Message{message(topic, "k", "first")})) // so that the leader is known
	for _, n := range []*numbering{&m.new, &m.old} {
		var err *Error
		if *n, err = p.initProducerID(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// send sends the same two batches until they are answered, and returns their offsets.
func (m *memory) send(t *testing.T) (offsets [2]int64) {
	t.Helper()
	l := m.p.topics[m.topic].lanes[0]
	for i, n := range []numbering{m.new, m.old} {
		at := time.Now().Add(-time.Duration(i) * 48 * time.Hour)
		eventually(t, "the broker takes the batch", func() bool {
			leader, _, err := l.leader()
			if err != nil {
				return false
			}
			a := sendBatch(t, leader, m.topic, n, at, "batch")
			offsets[i] = a.offset
			return a.err == nil && a.code == 0
		})
	}
	return offsets
}

func (m *memory) fill(t *testing.T) {
	t.Helper()
	if offsets := m.send(t); offsets != [2]int64{1, 2} {
		t.Fatalf("the offsets are %v", offsets)
	}
	if offsets := m.send(t); offsets != [2]int64{1, 2} {
		t.Errorf("sent again, the offsets are %v: a broker that runs knows both batches", offsets)
	}
}

func (m *memory) check(t *testing.T) {
	t.Helper()
	// The second would be 2 as well if brokers kept a producer for a day from when they last heard of it.
	if offsets := m.send(t); offsets != [2]int64{1, 3} {
		t.Errorf("after the broker's start the offsets are %v; it should know the new batch, and have forgotten the old one", offsets)
	}
}

// diary keeps what was said of each message.
type diary struct {
	mu      sync.Mutex
	results map[string][]Result
}

func (d *diary) note(value string, r Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.results == nil {
		d.results = map[string][]Result{}
	}
	d.results[value] = append(d.results[value], r)
}

// unknown is how many results of a message, or of all, said that it may be written.
func (d *diary) unknown(value string) (n int) {
	for v, results := range d.results {
		for _, r := range results {
			if (value == "" || v == value) && r.Err != nil && r.Err.Unknown {
				n++
			}
		}
	}
	return n
}

// check finds messages with more copies than results that announced one, and tells all about them.
func (d *diary) check(t *testing.T, log map[int32][]*kgo.Record) {
	t.Helper()
	found := map[string][]*kgo.Record{}
	for _, records := range log {
		for _, r := range records {
			found[string(r.Value)] = append(found[string(r.Value)], r)
		}
	}
	for value, records := range found {
		copies, unknown := len(records)-1, 0
		if copies > 0 {
			unknown = d.unknown(value)
		}
		if copies <= unknown {
			continue
		}
		var story strings.Builder
		slices.SortFunc(records, func(a, b *kgo.Record) int { return int(a.Offset - b.Offset) })
		for _, r := range records {
			fmt.Fprintf(&story, "\n\tin the log: partition %d, offset %d, producer id %d, epoch %d, time %v",
				r.Partition, r.Offset, r.ProducerID, r.ProducerEpoch, r.Timestamp)
		}
		for _, r := range d.results[value] {
			fmt.Fprintf(&story, "\n\tresult: partition %d, offset %d, not sent %v", r.Partition, r.Offset, r.NotSent)
			if e := r.Err; e != nil {
				fmt.Fprintf(&story, ", unknown %v, class %v, code %d: %s", e.Unknown, e.Class, e.Code, e.Text)
			}
		}
		t.Errorf("%s has %d copies, but only %d results said that it may be written:%s", value, copies, unknown, &story)
	}
}
