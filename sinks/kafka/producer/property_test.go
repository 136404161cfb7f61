package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Under refusals, answers lost after the write, cut connections and moving leaders each message has one result, what is
// reported as written is in the log, and in each key the first copies are in order. With numbered batches there is one
// copy of each.
// A batch that passes an earlier one whose connection broke: https://github.com/IBM/sarama/pull/3644,
// https://github.com/pingcap/tiflow/issues/12017
func TestOrderAndResults(t *testing.T) {
	for _, idempotent := range []bool{true, false} {
		t.Run(fmt.Sprint("idempotent ", idempotent), func(t *testing.T) {
			c := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "orders"))
			net := &network{}
			p := opened(t, c.ListenAddrs(), func(cfg *Config) {
				cfg.Idempotent, cfg.Dial = idempotent, net.dial
				cfg.BackoffMax = 20 * time.Millisecond
				cfg.MaxBatchBytes = 3000
			})
			stop := disturb(t, c, net)
			const callers, calls, size = 4, 40, 20
			var wg sync.WaitGroup
			for caller := range callers {
				wg.Go(func() {
					sent := map[string]int{} // how many of a key are written
					for range calls {
						deliverInOrder(t, p, caller, size, sent)
					}
				})
			}
			wg.Wait()
			stop()
			copies := checkLog(t, c.ListenAddrs(), "orders", callers*calls*size)
			if idempotent && copies != 0 {
				t.Errorf("%d copies", copies)
			}
			t.Logf("%d copies", copies)
		})
	}
}

// deliverInOrder plays the engine: a key's messages are sent in order, and what was not written goes again before
// anything behind it.
func deliverInOrder(t *testing.T, p *Producer, caller, size int, sent map[string]int) {
	var messages []*Message
	for i := range size {
		key := fmt.Sprintf("%d-%d", caller, i%5)
		messages = append(messages, message("orders", key, key+":"+strconv.Itoa(sent[key])))
		sent[key]++
	}
	for try := 0; len(messages) > 0; try++ {
		if try == 200 {
			t.Errorf("%d messages are still not written", len(messages))
			return
		}
		results := p.Produce(within(t, patience), messages)
		var again []*Message
		stopped := map[string]bool{}
		for i, r := range results {
			key := string(messages[i].Key)
			switch {
			case r.Err == nil && stopped[key]:
				t.Errorf("%s was written behind one that was not", messages[i].Value)
			case r.Err != nil && r.Err.Class != Retry:
				t.Errorf("%s: %v: %v", messages[i].Value, r.Err.Class, r.Err)
			case r.Err != nil:
				stopped[key] = true
				again = append(again, messages[i])
			}
		}
		messages = again
	}
}

// disturb makes the cluster unreliable until it is told to stop.
func disturb(t *testing.T, c *kfake.Cluster, net *network) (stop func()) {
	net.lose(8)
	random := rand.New(rand.NewPCG(7, 11))
	refusals := []*kerr.Error{kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError}
	var faults []*kfake.FaultHandle
	for _, err := range refusals {
		faults = append(faults, c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: -1,
			When: func(kmsg.Request) bool { return random.IntN(100) < 3 }}))
	}
	ended := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-ended:
			c.DropControl()
		default:
			if random.IntN(100) < 5 {
				c.KeepControl()
				return nil, errors.New("cut before the write"), true
			}
		}
		return nil, nil, false
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_ = c.MoveTopicPartition("orders", rand.Int32N(3), rand.Int32N(3))
			sleep(ctx, 3*time.Millisecond)
		}
	})
	return func() {
		cancel()
		wg.Wait()
		close(ended)
		net.lose(0)
		for _, f := range faults {
			f.Remove()
		}
	}
}

// checkLog checks the topic's keys and tells how many records are copies of one before.
func checkLog(t *testing.T, brokers []string, topic string, want int) (copies int) {
	t.Helper()
	next := map[string]int{}
	for _, records := range log(t, brokers, topic) {
		for _, r := range records {
			key, number, _ := strings.Cut(string(r.Value), ":")
			n, err := strconv.Atoi(number)
			if err != nil || key != string(r.Key) {
				t.Fatalf("a record %q of key %q", r.Value, r.Key)
			}
			switch {
			case n == next[key]:
				next[key]++
			case n < next[key]:
				copies++
			default:
				t.Errorf("%s comes before number %d of its key", r.Value, next[key])
				next[key] = n + 1
			}
		}
	}
	total := 0
	for _, n := range next {
		total += n
	}
	if total != want {
		t.Errorf("%d messages in the log, want %d", total, want)
	}
	return copies
}
