package producer

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

const (
	// How many produce requests may be at one broker at the same time, each on a connection of its own.
	sendersPerBroker = 2
	// How many bytes of batches go in one request, at least one batch.
	requestBytes = 8 << 20
)

// broker is one broker's connections, and the batches that wait for one. Batches of several lanes that wait together go
// in one request.
type broker struct {
	p    *Producer
	addr string

	mu      sync.Mutex
	waiting []*attempt
	senders int
	idle    []*conn // the last one was used last
	muted   time.Time
	failed  time.Time // when it last could not be reached or did not answer; zero if the last try went well
	closed  bool
}

// attempt is one try to write a batch.
type attempt struct {
	topic     string
	partition int32
	batch     []byte
	answer    chan answer // has room for the one answer
}

// answer is what came of an attempt: a broker's word, or err.
type answer struct {
	code    kafka.Error
	text    string
	offset  int64
	records []recordError
	err     *Error
	sent    bool // with err: a byte was sent
}

type recordError struct {
	index int
	text  string
}

// produce takes an attempt, which will have its answer within DialTimeout and RequestTimeout once it is its turn.
func (b *broker) produce(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, a)
	if b.senders < sendersPerBroker {
		b.senders++
		b.p.work.Add(1)
		go b.serve()
	}
}

// serve sends what waits until nothing does.
func (b *broker) serve() {
	defer b.p.work.Done()
	runtime.Gosched() // a call's lanes begin together: those that are about to come go in the same request
	for group := b.take(); len(group) > 0; group = b.take() {
		b.send(group)
	}
}

func (b *broker) take() []*attempt {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, 0
	for n < len(b.waiting) && (n == 0 || size+len(b.waiting[n].batch) <= requestBytes) {
		size += len(b.waiting[n].batch)
		n++
	}
	group := b.waiting[:n:n]
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting = nil
	}
	if n == 0 {
		b.senders--
	}
	return group
}

func (b *broker) send(group []*attempt) {
	request := &rawproduce.Request{
		Acks: b.p.cfg.Acks.wire(),
		// The broker's patience ends before ours, so that it can still say so.
		Timeout: int32((b.p.cfg.RequestTimeout - b.p.cfg.RequestTimeout/10).Milliseconds()),
	}
	places := map[string]int{}
	for _, a := range group {
		i, ok := places[a.topic]
		if !ok {
			i = len(request.Topics)
			places[a.topic] = i
			request.Topics = append(request.Topics, rawproduce.RequestTopic{Topic: a.topic})
		}
		request.Topics[i].Partitions = append(request.Topics[i].Partitions, rawproduce.RequestPartition{
			Partition: a.partition, RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(a.batch)},
		})
	}
	response, sent, err := b.ask(b.p.ctx, request)
	if err != nil {
		for _, a := range group {
			a.answer <- answer{err: err, sent: sent}
		}
		return
	}
	b.distribute(group, response.(*produce.Response))
}

// distribute hands each attempt its part of the response.
func (b *broker) distribute(group []*attempt, r *produce.Response) {
	b.mute(time.Duration(r.ThrottleTimeMs) * time.Millisecond)
	type place struct {
		topic     string
		partition int32
	}
	answers := make(map[place]answer, len(group))
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			a := answer{code: kafka.Error(p.ErrorCode), text: p.ErrorMessage, offset: p.BaseOffset}
			for _, e := range p.RecordErrors {
				a.records = append(a.records, recordError{int(e.BatchIndex), e.BatchIndexErrorMessage})
			}
			answers[place{t.Topic, p.Partition}] = a
		}
	}
	for _, a := range group {
		result, ok := answers[place{a.topic, a.partition}]
		if !ok {
			result = answer{sent: true, err: &Error{Text: fmt.Sprintf("broker %s: no answer for topic %q, partition %d", b.addr, a.topic, a.partition)}}
		}
		a.answer <- result
	}
}

// ask sends one request and waits for its response, on a connection that nobody else uses. It reports whether a byte of
// the request may have been sent.
func (b *broker) ask(ctx context.Context, request protocol.Message) (response protocol.Message, sent bool, err *Error) {
	c, err := b.connection(ctx)
	if err != nil {
		return nil, false, err
	}
	response, sent, failure := c.ask(ctx, request, b.p.cfg.RequestTimeout)
	if failure != nil {
		c.Close()
		b.distrust()
		return nil, sent, &Error{Class: Retry, Text: fmt.Sprintf("broker %s: %v", b.addr, failure), Err: failure}
	}
	b.release(c)
	return response, sent, nil
}

// connection is one that was used last, or a new one.
func (b *broker) connection(ctx context.Context) (*conn, *Error) {
	b.mu.Lock()
	for len(b.idle) > 0 {
		c := b.idle[len(b.idle)-1]
		b.idle = b.idle[:len(b.idle)-1]
		c.timer.Stop()
		if c.fresh(b.p.cfg.IdleTimeout) {
			b.mu.Unlock()
			return c, nil
		}
		c.Close()
	}
	b.mu.Unlock()
	c, err := b.p.dial(ctx, b.addr)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = time.Time{}
	if err != nil {
		b.failed = time.Now()
	}
	return c, err
}

// distrust closes what is idle after a request was not answered: were the broker gone without a word, each of these would
// take a request's time to find out.
func (b *broker) distrust() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = time.Now()
	b.closeIdle()
}

// release keeps a connection for the next request.
func (b *broker) release(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = time.Time{}
	if b.closed {
		c.Close()
		return
	}
	c.used = time.Now()
	c.timer = time.AfterFunc(b.p.cfg.IdleTimeout, func() { b.expire(c) })
	b.idle = append(b.idle, c)
}

// expire closes a connection that has been idle for too long.
func (b *broker) expire(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.idle {
		if b.idle[i] == c {
			b.idle = append(b.idle[:i], b.idle[i+1:]...)
			c.Close()
			return
		}
	}
}

// close closes what is idle now and what will be.
func (b *broker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.closeIdle()
}

// closeIdle is called with mu held.
func (b *broker) closeIdle() {
	for _, c := range b.idle {
		c.timer.Stop()
		c.Close()
	}
	b.idle = nil
}

func (b *broker) mute(d time.Duration) {
	if d <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.muted = time.Now().Add(d)
}

// mutedFor is how long the broker wants to hear nothing.
func (b *broker) mutedFor() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, time.Until(b.muted))
}
