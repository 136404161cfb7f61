package producer

import "github.com/segmentio/kafka-go"

// settle gives an entry its result unless its call has left. It is called with mu held.
func (l *lane) settle(e *entry, offset int64, err *Error, notSent bool) {
	if e.settled {
		return
	}
	e.settled = true
	if err != nil && e.doubtful {
		doubt := *err
		doubt.Unknown = true
		err, notSent = &doubt, false
	}
	e.call.results[e.index] = Result{Partition: l.partition, Offset: offset, Err: err, NotSent: notSent}
	e.call.finish(1)
}

// written settles a batch that is in the log.
func (l *lane) written(b *batch, offset int64) {
	if l.next.id >= 0 {
		l.next.sequence = advance(l.next.sequence, len(b.entries))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batch = nil
	for i, e := range b.entries {
		at := int64(-1)
		if offset >= 0 {
			at = offset + int64(i)
		}
		l.settle(e, at, nil, false)
	}
}

// advance is the sequence after n more messages; it begins again at zero after the largest int32.
func advance(sequence int32, n int) int32 {
	return int32((int64(sequence) + int64(n)) & 0x7fffffff)
}

// fail settles a batch that is not written, and what waits behind it of the same calls: their time is up, or it must not
// overtake. If the failure would meet any batch it settles all that waits.
func (l *lane) fail(b *batch, err *Error) {
	l.mu.Lock()
	calls := map[*call]bool{}
	mine := *err
	mine.Unknown = mine.Unknown || b.unknown
	for _, e := range b.entries {
		calls[e.call] = true
		l.settle(e, -1, &mine, false)
	}
	everything := err.Class != Retry
	behind := err
	if !everything {
		behind = &Error{Class: Retry, Code: err.Code, Text: "waits for a message before it in its partition: " + err.Text, Err: err.Err}
	}
	l.sweep(func(e *entry) bool {
		if everything || calls[e.call] {
			l.settle(e, -1, behind, true)
		}
		return e.settled
	})
	l.batch = nil
	l.mu.Unlock()
	if b.unknown {
		l.renumber()
	}
}

// refuse settles the messages of a batch that can never be written, by their place in it, and those of the same key and
// call behind them. What is left of the batch goes again at once.
func (l *lane) refuse(b *batch, culprits map[int]*Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stopped := map[keyOf]bool{}
	behind := func(e *entry) bool {
		if !e.settled && e.message().Key != nil && stopped[keyOf{e.call, string(e.message().Key)}] {
			l.settle(e, -1, behindRefused, true)
		}
		return e.settled
	}
	for i, e := range b.entries { // what is before a culprit goes again
		if err := culprits[i]; !behind(e) && err != nil {
			if e.message().Key != nil {
				stopped[keyOf{e.call, string(e.message().Key)}] = true
			}
			l.settle(e, -1, err, false)
		}
	}
	l.sweep(behind)
	if rest := unsettled(b.entries); len(rest) > 0 {
		l.groups = append([][]*entry{rest}, l.groups...)
	}
	l.batch = nil
}

// doubt remembers, of messages that go on in other batches, that this one may be written.
func (l *lane) doubt(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range b.entries {
		e.doubtful = true
	}
}

// keyOf is a key in one call: calls that run at the same time share none.
type keyOf struct {
	call *call
	key  string
}

var behindRefused = &Error{Class: Retry, Text: "waits for a message before it of the same key, which was refused"}

// halve takes a batch apart that is too large, or holds something that the broker refuses without saying what.
func (l *lane) halve(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	half := len(b.entries) / 2
	l.groups = append([][]*entry{b.entries[:half:half], b.entries[half:]}, l.groups...)
	l.batch = nil
}

// sweep removes from what waits all that drop reports. It is called with mu held.
func (l *lane) sweep(drop func(*entry) bool) {
	keep := func(entries []*entry) []*entry {
		kept := entries[:0]
		for _, e := range entries {
			if !drop(e) {
				kept = append(kept, e)
			}
		}
		clear(entries[len(kept):])
		return kept
	}
	groups := l.groups[:0]
	for _, g := range l.groups {
		if g = keep(g); len(g) > 0 {
			groups = append(groups, g)
		}
	}
	l.groups, l.queue = groups, keep(l.queue)
}

// leave settles everything of a call. When it returns nothing of the call is read any more.
func (l *lane) leave(c *call, cause error) {
	l.mu.Lock()
	why := Error{Class: Retry, Text: "not sent in time", Err: cause}
	if t := l.trouble; t != nil {
		why.Class, why.Code, why.RetryAfter, why.Text = t.Class, t.Code, t.RetryAfter, why.Text+": "+t.Text
	}
	l.sweep(func(e *entry) bool {
		if e.call == c {
			l.settle(e, -1, &why, true)
		}
		return e.settled
	})
	if b := l.batch; b != nil {
		l.abandon(b, c, why)
	}
	l.mu.Unlock()
	l.reading.Lock()
	l.reading.Unlock() //nolint:staticcheck // whoever reads has to be done, that is all
}

// abandon settles a call's part of the batch on its way, which was tried at least once if there is trouble. It is called
// with mu held.
func (l *lane) abandon(b *batch, c *call, why Error) {
	why.Unknown = b.unknown || b.outstanding
	switch {
	case l.trouble != nil && why.Unknown:
		why.Text = "not confirmed in time: " + l.trouble.Text
	case l.trouble != nil:
		why.Text = "not written in time: " + l.trouble.Text
	case why.Unknown:
		why.Text = "not confirmed in time"
	}
	for _, e := range b.entries {
		if e.call != c || e.settled {
			continue
		}
		l.settle(e, -1, &why, l.trouble == nil && !why.Unknown)
		if !b.left {
			b.left = true
			close(b.abandoned)
		}
	}
}

func tooLarge(size, limit int, code kafka.Error) *Error {
	return &Error{Class: Permanent, Code: code, Text: sizeText(size, limit)}
}
