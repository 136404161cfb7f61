package publisher

import (
	"context"
	"sync"
	"time"
)

// call is one call of Publish. Its results are written by the lanes.
type call struct {
	items []item

	mu      sync.Mutex
	results []Result
	left    int // results that are still to come
	over    bool
	done    chan struct{} // closed with over
}

// item is a message on its way. Only its lane uses it, once it is there.
type item struct {
	call    *call
	message *Message
	index   int
	next    *item // the key's next message, which waits for this one
	behind  bool  // another one
	invalid *Error
	unsure  bool // published before, on a channel that was closed without a word about it
}

func newCall(messages []*Message, results []Result) *call {
	c := &call{items: make([]item, len(messages)), results: results, left: len(messages), done: make(chan struct{})}
	var last map[string]*item // of each key
	for i, m := range messages {
		it := &c.items[i]
		it.call, it.message, it.index = c, m, i
		if !m.Keyed {
			continue
		}
		if last == nil {
			last = make(map[string]*item, len(messages))
		}
		if before := last[m.Key]; before != nil {
			before.next, it.behind = it, true
		}
		last[m.Key] = it
	}
	return c
}

// settle writes an item's result. It returns the message of its key that may be sent now, if there is one; after a failure
// the key's other messages are not attempted.
func (it *item) settle(err *Error) (next *item) {
	c := it.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	c.results[it.index].Err = err
	c.left--
	next = it.next
	if err != nil {
		skipped := &Error{Kind: KindNotAttempted, Text: "behind a message of its key that was not delivered"}
		for ; next != nil; next = next.next {
			c.results[next.index].Err = skipped
			c.left--
		}
	}
	if c.left == 0 {
		c.over = true
		close(c.done)
	}
	return next
}

// fail settles an item that will not be delivered within the call. If it was published before, it is unknown.
func (it *item) fail(err *Error) {
	if it.unsure {
		err = err.unknown()
	}
	it.settle(err)
}

// wait returns when each message has its result. When the context's time is nearly over, or the context has ended, it
// takes the messages back from the lanes; if one of them hangs in a write, the connection is given up.
func (c *call) wait(ctx context.Context, s *session) {
	limit := time.Duration(1<<63 - 1)
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = left - min(left/8, time.Second)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	s.forget(c)
	const patience = 100 * time.Millisecond
	timer.Reset(patience)
	select {
	case <-c.done:
		return
	case <-timer.C:
	}
	s.end(&Error{Kind: KindConnection, Text: "the connection was given up, since nothing could be written to it"})
	<-c.done
}

// taken returns the results.
func (c *call) taken() []Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.results
}
