package producer

import "sync"

// lane is one partition of one topic. It has at most one batch on its way at any time, so that nothing can overtake a
// batch that has to go again. What calls add in the meantime goes together in the next batch.
//
// A goroutine runs it from the moment there is something to send until there is nothing left.
type lane struct {
	p         *Producer
	topic     *topic
	partition int32

	mu     sync.Mutex
	active bool       // its goroutine runs
	groups [][]*entry // to be sent as they are, before the queue: what is left of a batch that was taken apart
	queue  []*entry
	batch  *batch // on its way
	last   *call  // that pushed last

	// reading is held while messages are read, which a call that leaves must wait for: they are its caller's again.
	reading sync.Mutex

	// These are for the lane's goroutine only.
	next    numbering // of the next batch
	limit   int       // what a batch may weigh here, if less than the configuration says
	trouble *Error    // why the batch on its way is not yet written; guarded by mu
}

// batch is a run of entries on its way.
type batch struct {
	entries []*entry
	weight  int // before compression
	bytes   []byte
	// These are guarded by the lane's mu.
	outstanding bool          // a broker may be reading it
	unknown     bool          // an earlier try may have written it
	abandoned   chan struct{} // closed when a call that has entries in it has left
	left        bool          // it is closed
	damaged     bool          // a broker has found it damaged once
}

// push adds an entry and reports whether its call may be new here.
func (l *lane) push(e *entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, e)
	fresh := l.last != e.call
	l.last = e.call
	return fresh
}

// start makes the lane run, if it does not.
func (l *lane) start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.active && len(l.queue) > 0 {
		l.active = true
		l.p.work.Add(1)
		go l.run()
	}
}

func (l *lane) run() {
	defer l.p.work.Done()
	for b := l.take(); b != nil; b = l.take() {
		if l.encode(b) {
			l.deliver(b)
		}
		l.p.recycle(b.bytes)
	}
}

// take makes the next batch of what waits; nil is the end of the run.
func (l *lane) take() *batch {
	limit := l.p.cfg.MaxBatchBytes
	if l.limit > 0 {
		limit = l.limit
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batch, l.trouble = nil, nil
	b := &batch{weight: batchOverhead, abandoned: make(chan struct{})}
	if len(l.groups) > 0 {
		b.entries, l.groups = l.groups[0], l.groups[1:]
		for _, e := range b.entries {
			b.weight += e.bound
		}
	} else {
		n := 0
		for n < len(l.queue) && (n == 0 || b.weight+l.queue[n].bound <= limit) {
			b.weight += l.queue[n].bound
			n++
		}
		// A copy: who leaves closes the queue's gaps.
		b.entries = append([]*entry(nil), l.queue[:n]...)
		l.queue = l.queue[n:]
	}
	if len(b.entries) == 0 {
		l.active, l.queue, l.groups, l.last = false, nil, nil, nil
		return nil
	}
	l.batch = b
	return b
}

// encode gives the batch its bytes. It reports false when there is nothing to send: everything in it was left or too
// large.
func (l *lane) encode(b *batch) bool {
	l.reading.Lock()
	defer l.reading.Unlock()
	if !l.stay(b) {
		return false
	}
	release := l.p.encoder()
	bytes, err := appendBatch(l.p.buffer(b.weight+4), b.entries, l.next, l.p.cfg.Compression)
	release()
	b.bytes = bytes
	switch limit := l.p.cfg.MaxBatchBytes; {
	case err != nil:
		l.fail(b, &Error{Class: Retry, Text: err.Error(), Err: err})
		return false
	case len(bytes)-4 <= limit:
		return true
	case len(b.entries) == 1:
		l.refuse(b, map[int]*Error{0: tooLarge(len(bytes)-4, limit, 0)})
	default:
		l.halve(b)
	}
	return false
}

// stay drops what was left from a batch that was not sent yet, and reports whether something remains.
func (l *lane) stay(b *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.entries = unsettled(b.entries)
	if b.left {
		b.left, b.abandoned = false, make(chan struct{})
	}
	return len(b.entries) > 0
}

func unsettled(entries []*entry) []*entry {
	kept := entries[:0]
	for _, e := range entries {
		if !e.settled {
			kept = append(kept, e)
		}
	}
	return kept
}

// busy reports whether something is on its way.
func (l *lane) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active
}
