package engine

import (
	"time"

	"github.com/connectd/connectd/core"
)

// Wait is a row that the sink asked to have later, though it asked so of no other: its destination is one of many. Nothing
// of that is written to the table, so people learn it here.
type Wait struct {
	Seq     int64     `json:"seq"`
	Code    string    `json:"code"`
	Message string    `json:"message,omitempty"`
	Until   time.Time `json:"until"`

	at time.Duration
}

const (
	maxWaits    = 32  // rows that are told of; a heartbeat is small
	maxWaitText = 200 // bytes of a message
)

// waits are such rows as far as they are told of.
type waits struct {
	list []Wait
	more bool // some were left out since there was last none
}

// add notes that a row waits.
func (w *waits) add(seq int64, o core.Outcome, until, now time.Duration) {
	w.remove(seq)
	if len(w.list) >= maxWaits {
		w.expire(now)
	}
	if len(w.list) >= maxWaits {
		w.more = true
		return
	}
	message := core.CleanText(o.Message)
	if len(message) > maxWaitText {
		message = core.CleanText(message[:maxWaitText]) // a character that was cut becomes a sign of that
	}
	w.list = append(w.list, Wait{Seq: seq, Code: core.CleanText(orElse(o.Code, o.Kind.String())), Message: message, at: until})
}

// remove forgets a row: it was answered.
func (w *waits) remove(seq int64) {
	for i := range w.list {
		if w.list[i].Seq == seq {
			w.list = append(w.list[:i], w.list[i+1:]...)
			break
		}
	}
	w.more = w.more && len(w.list) > 0
}

func (w *waits) expire(now time.Duration) {
	kept := w.list[:0]
	for _, x := range w.list {
		if x.at > now {
			kept = append(kept, x)
		}
	}
	w.list = kept
	w.more = w.more && len(w.list) > 0
}

// told is what people are told now; nil when nothing waits.
func (w *waits) told(now time.Duration) []Wait {
	var list []Wait
	for _, x := range w.list {
		if x.at > now {
			list = append(list, x)
		}
	}
	return list
}
