package producer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	// What Produce keeps of its caller's time to answer in: a tenth, within these bounds.
	leastMargin, mostMargin = 20 * time.Millisecond, time.Second
	// How long a call without a deadline lasts.
	longestCall = 2 * time.Minute
	// How many bytes without a key go to one partition before the next has its turn: batches stay large, and no partition
	// is left out.
	unkeyedRun = 32 << 10
)

// call is one call of Produce. Each of its messages is an entry in a lane, or has its result.
type call struct {
	messages []*Message
	results  []Result
	entries  []entry
	lanes    []*lane // where it has entries; some perhaps more than once
	open     atomic.Int64
	done     chan struct{} // closed when open is zero
}

// entry is a message on its way through a lane. All but its last fields is constant.
type entry struct {
	call  *call
	index int
	bound int
	// These are guarded by the lane's mu.
	settled  bool // has its result
	doubtful bool // was in a batch that may be written and was taken apart
}

func (e *entry) message() *Message { return e.call.messages[e.index] }

// finish says that n more entries have their result.
func (c *call) finish(n int64) {
	if c.open.Add(-n) == 0 {
		close(c.done)
	}
}

// Produce writes the messages and answers with one result for each, in their order. Messages for one partition are
// written in their order. It returns before ctx's deadline. What may be written by then, or later, says so: its Err is
// Unknown. After that nothing is sent for this call any more, though what a broker has not yet read may still be written.
func (p *Producer) Produce(ctx context.Context, messages []*Message) []Result {
	c := &call{messages: messages, results: make([]Result, len(messages)), entries: make([]entry, len(messages)), done: make(chan struct{})}
	if len(messages) == 0 {
		return c.results
	}
	for i := range c.results {
		c.results[i] = Result{Partition: messages[i].Partition, Offset: -1}
	}
	ctx, leave := p.enter(ctx, true)
	if leave == nil {
		c.refuse(closedError())
		return c.results
	}
	defer leave()
	ctx, cancel := leaving(ctx)
	defer cancel()
	c.open.Store(int64(len(messages)))
	p.route(ctx, c)
	for _, l := range c.lanes {
		l.start()
	}
	select {
	case <-c.done:
		return c.results
	case <-ctx.Done():
	}
	for _, l := range c.lanes {
		l.leave(c, context.Cause(ctx))
	}
	<-c.done
	return c.results
}

// leaving ends when the call must: a little before its caller's time is up.
func leaving(ctx context.Context) (context.Context, context.CancelFunc) {
	left := longestCall
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	return context.WithTimeoutCause(ctx, left-min(max(left/10, leastMargin), mostMargin), errTimeUp)
}

var errTimeUp = errors.New("the call's time was up")

func (c *call) refuse(err *Error) {
	for i := range c.results {
		c.results[i].Err, c.results[i].NotSent = err, true
	}
}

// route puts each message into its lane, or settles it when there is none.
func (p *Producer) route(ctx context.Context, c *call) {
	topics := p.resolve(ctx, c.messages)
	defer p.forget(topics)
	var r *route
	for i, m := range c.messages {
		if r == nil || r.topic.name != m.Topic {
			r = topics[m.Topic]
		}
		e := &c.entries[i]
		*e = entry{call: c, index: i, bound: recordBound(m)}
		l, err := r.lane(m, e.bound)
		switch {
		case err != nil:
			c.results[i].Err = err
			c.finish(1)
		default:
			c.results[i].Partition = l.partition
			if l.push(e) {
				c.lanes = append(c.lanes, l)
			}
		}
	}
}

// route is a topic as one call sees it: from its first message to its last the partitions are the same.
type route struct {
	topic   *topic
	lanes   []*lane
	able    []*lane // those with a leader, if any has; else all
	err     *Error
	unkeyed int // bytes without a key
	turn    int // the partition that unkeyed messages began with
}

// lane is where the message goes, or why it goes nowhere.
func (r *route) lane(m *Message, bound int) (*lane, *Error) {
	if r.err != nil {
		return nil, r.err
	}
	n := len(r.lanes)
	switch {
	case m.Partition >= 0 && int(m.Partition) >= n:
		return nil, &Error{Class: Retry, Code: kafka.UnknownTopicOrPartition, Text: fmt.Sprintf(
			"topic %q has no partition %d: it has %d", m.Topic, m.Partition, n)}
	case m.Partition >= 0:
		return r.lanes[m.Partition], nil
	case m.Key != nil:
		return r.lanes[partitionOf(m.Key, n)], nil
	}
	l := r.able[(r.turn+r.unkeyed/unkeyedRun)%len(r.able)]
	r.unkeyed += bound
	return l, nil
}
