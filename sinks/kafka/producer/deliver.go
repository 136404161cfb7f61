package producer

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	// A broker's request to wait is kept inside the call when it is no longer than this; a longer one is the caller's.
	shortThrottle = 100 * time.Millisecond
	// Nothing answers for so long: the caller is told. A restart of a broker that others replace is shorter.
	unreachableAfter = 5 * time.Second
	// A topic that was there and is missing in one broker's view may come back within this time.
	vanishedAfter = 2 * time.Second
	// How old a batch's latest message may be for the broker to know the batch again. Brokers forget a producer whose latest
	// message, by its own time, is older than producer.id.expiration.ms, a day if they are not told otherwise
	// (ProducerStateManager.isProducerExpired, https://github.com/apache/kafka/pull/13040). Half of it, since clocks differ.
	rememberedFor = 12 * time.Hour
	// noID as a producer id asks for a new one.
	noID = -2
)

// deliver sends a batch until its fate is known or its calls have left.
func (l *lane) deliver(b *batch) {
	var pause backoff
	pause.min, pause.max = l.p.cfg.BackoffMin, l.p.cfg.BackoffMax
	for {
		leader, seen, v := l.try(b)
		l.note(b, v)
		switch v.step {
		case stepWritten:
			l.written(b, v.offset)
			return
		case stepLeft:
			l.giveUp(b)
			return
		case stepForgettable:
			l.giveUp(b)
			_ = l.p.refresh(l.p.ctx, seen) // for the next batch, which finds out if there was no answer
			return
		case stepFail:
			l.fail(b, v.err)
			return
		case stepTakeApart:
			l.takeApart(b, v)
			return
		case stepRenumber:
			l.renumber()
			renumber(b.bytes, l.next)
		case stepFindLeader:
			if err := l.p.refresh(l.p.ctx, seen); err != nil {
				l.note(b, verdict{err: err, unknown: b.unknown})
				if l.p.hopeless(err) {
					l.fail(b, err)
					return
				}
			} else if now, _, err := l.leader(); err == nil && now != leader && pause.tries == 0 {
				pause.tries++ // one that moved is worth a try at once, but not for ever
				continue
			}
		}
		if !l.wait(b, pause.next()) {
			l.giveUp(b)
			return
		}
	}
}

// try sends the batch once.
func (l *lane) try(b *batch) (leader *broker, seen uint64, v verdict) {
	v = verdict{step: stepFindLeader, unknown: b.unknown}
	if leader, seen, v.err = l.leader(); v.err != nil {
		if v.err.Code != kafka.LeaderNotAvailable {
			v.step = stepFail
		}
		return leader, seen, v
	}
	if v.err = l.identify(b); v.err != nil {
		if l.p.hopeless(v.err) {
			v.step = stepFail
		}
		return leader, seen, v
	}
	if muted := leader.mutedFor(); muted > shortThrottle && !b.unknown {
		v.step, v.err = stepFail, &Error{Class: Throttled, RetryAfter: muted, Text: fmt.Sprintf(
			"broker %s asks this client to wait %v: it sends more than its quota", leader.addr, muted.Round(time.Millisecond))}
		return leader, seen, v
	} else if muted > 0 && !l.wait(b, muted) {
		v.step = stepLeft
		return leader, seen, v
	}
	l.mu.Lock()
	left := b.left
	b.outstanding = !left
	l.mu.Unlock()
	if left {
		v.step = stepLeft
		return leader, seen, v
	}
	a := &attempt{topic: l.topic.name, partition: l.partition, batch: b.bytes, answer: make(chan answer, 1)}
	leader.produce(a)
	v = l.judge(b, <-a.answer, leader)
	if again := v.step == stepAgain || v.step == stepFindLeader; again && v.unknown && l.forgettable(b) {
		v.step = stepForgettable
		v.err.Text += "; its time is too long ago for brokers to know it again"
	}
	return leader, seen, v
}

// forgettable reports whether the broker may not know the batch if it is sent again. Batches without numbers it never knows.
func (l *lane) forgettable(b *batch) bool {
	latest := time.UnixMilli(int64(binary.BigEndian.Uint64(b.bytes[atMaxTimestamp:])))
	return l.next.id >= 0 && time.Since(latest) >= rememberedFor
}

// note keeps what a try has shown, for calls that leave.
func (l *lane) note(b *batch, v verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.outstanding = false
	b.unknown = v.unknown
	if v.err != nil {
		l.trouble = v.err
	}
}

// giveUp ends the tries of a batch that a call has left. What remains of other calls goes again in another batch, unless
// this one may be written.
func (l *lane) giveUp(b *batch) {
	if b.unknown {
		why := Error{Class: Retry, Text: "not confirmed"}
		if t := l.trouble; t != nil {
			why = *t
		}
		why.Class, why.Unknown = Retry, true
		l.fail(b, &why)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.entries = unsettled(b.entries); len(b.entries) > 0 {
		l.groups = append([][]*entry{b.entries}, l.groups...)
	}
	l.batch = nil
}

// takeApart goes on without what the broker refused, or looks for it in smaller batches.
func (l *lane) takeApart(b *batch, v verdict) {
	if b.unknown {
		l.renumber() // its sequence may be in use
		l.doubt(b)
	}
	if v.culprits != nil {
		l.refuse(b, v.culprits)
		return
	}
	if v.tooLarge {
		l.limit = max(b.weight/2, minBatchBytes)
	}
	l.halve(b)
}

// renumber begins the lane's numbering anew in the next epoch of its id, which is its own. From the first batch of that epoch on the broker takes
// nothing from the one before, so that no late copy of a batch whose fate is unknown can come behind its successors.
func (l *lane) renumber() {
	switch {
	case l.next.id == unnumbered.id:
	case l.next.id == noID || l.next.epoch == math.MaxInt16:
		l.next = numbering{id: noID}
	default:
		l.next.epoch, l.next.sequence = l.next.epoch+1, 0
	}
}

// identify gets the lane a producer id if it has none, or has lost it.
func (l *lane) identify(b *batch) *Error {
	if l.next.id != noID {
		return nil
	}
	next, err := l.p.initProducerID(l.p.ctx)
	if err != nil {
		return err
	}
	l.next = next
	renumber(b.bytes, next)
	return nil
}

// wait reports false when a call of the batch has left.
func (l *lane) wait(b *batch, d time.Duration) bool {
	l.mu.Lock()
	abandoned := b.abandoned
	l.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-abandoned:
	case <-l.p.callers.Done():
	}
	return false
}

// leader is who takes the lane's batches, and since when that is known.
func (l *lane) leader() (*broker, uint64, *Error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	seen := l.p.generation
	t := l.topic
	if t.code != 0 && t.code != kafka.LeaderNotAvailable && !t.vanishing() {
		return nil, seen, l.p.topicError(t)
	}
	if int(l.partition) < len(t.leaders) {
		if b := l.p.brokers[t.leaders[l.partition]]; b != nil {
			return b, seen, nil
		}
	}
	return nil, seen, &Error{Class: Retry, Code: kafka.LeaderNotAvailable, Text: fmt.Sprintf(
		"partition %d of topic %q has no leader", l.partition, t.name)}
}

// backoff is a pause that doubles, with jitter, so that lanes do not come back all at once.
type backoff struct {
	min, max time.Duration
	tries    int
}

func (b *backoff) next() time.Duration {
	d := min(b.max, b.min<<min(b.tries, 20))
	b.tries++
	return d/2 + rand.N(d/2+1)
}
