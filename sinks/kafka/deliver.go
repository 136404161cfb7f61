package kafka

import (
	"bytes"
	"context"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/kafka/producer"
)

// wire is the part of a producer.Producer that delivers.
type wire interface {
	Produce(ctx context.Context, messages []*producer.Message) []producer.Result
}

// courier delivers batches. It may be used concurrently.
type courier struct {
	composer *composer
	judge    *judge
	wire     wire
}

// delivery is one call's work.
type delivery struct {
	courier  *courier
	batch    []core.Record
	outcomes []core.Outcome
	held     map[string]bool // keys of which a record was sent and not delivered
	pad      pad
}

// wave is what is sent at once, and the places of its records in the batch.
type wave struct {
	messages []*producer.Message
	places   []int
}

// deliver sends the batch's records. Messages of one key whose order the producer keeps are sent together; others of the
// key when those before them are delivered.
func (c *courier) deliver(ctx context.Context, batch []core.Record) []core.Outcome {
	d := &delivery{courier: c, batch: batch, outcomes: make([]core.Outcome, len(batch)), held: map[string]bool{}}
	for _, w := range d.waves() {
		d.send(ctx, w)
	}
	return d.outcomes
}

// last is where a key's latest message goes.
type last struct {
	message *producer.Message
	wave    int
}

// waves makes messages of the records that one can be made of. Behind one that none can be made of, its key ends; what is
// before it goes.
func (d *delivery) waves() []wave {
	waves := make([]wave, 1)
	apart := !d.courier.composer.oneTarget()
	latest, ended := map[string]last{}, map[string]bool{}
	for i := range d.batch {
		r := &d.batch[i]
		if d.behind(i, ended) {
			continue
		}
		m, outcome := d.courier.composer.compose(r, &d.pad)
		if outcome != nil {
			d.settle(i, *outcome, ended)
			continue
		}
		n := 0
		if apart && r.Keyed {
			before, known := latest[r.Key]
			if n = before.wave; known && !sameTarget(before.message, m) {
				n++
			}
			latest[r.Key] = last{m, n}
		}
		if n == len(waves) {
			waves = append(waves, wave{})
		}
		waves[n].messages = append(waves[n].messages, m)
		waves[n].places = append(waves[n].places, i)
	}
	return waves
}

// sameTarget says whether the producer keeps the order of two messages, also when the first is refused: it goes by their
// key, in one partition.
func sameTarget(a, b *producer.Message) bool {
	return a.Topic == b.Topic && a.Partition == b.Partition && a.Key != nil && b.Key != nil && bytes.Equal(a.Key, b.Key)
}

// send sends what of a wave is not held back by an earlier one.
func (d *delivery) send(ctx context.Context, w wave) {
	messages, places := w.messages[:0], w.places[:0]
	for n, i := range w.places {
		if !d.behind(i, d.held) {
			messages, places = append(messages, w.messages[n]), append(places, i)
		}
	}
	if len(messages) == 0 {
		return
	}
	results := d.courier.wire.Produce(ctx, messages)
	for n, o := range d.courier.judge.call(results) {
		// The first of a key that fails says why; one behind it that is surely not written is not charged for that.
		if i := places[n]; o.Kind == core.Delivered || o.Unknown || !d.behind(i, d.held) {
			d.settle(i, o, d.held)
		}
	}
}

// behind answers for a record whose key is among those, and says whether it is.
func (d *delivery) behind(i int, keys map[string]bool) bool {
	r := &d.batch[i]
	if !r.Keyed || !keys[r.Key] {
		return false
	}
	d.outcomes[i] = behind("an earlier record of its key was not delivered")
	return true
}

// settle notes an outcome, and its key among those if it is not delivered.
func (d *delivery) settle(i int, o core.Outcome, keys map[string]bool) {
	d.outcomes[i] = o
	if r := &d.batch[i]; r.Keyed && o.Kind != core.Delivered {
		keys[r.Key] = true
	}
}
