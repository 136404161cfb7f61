package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/kafka/producer"
)

// scripted is a wire that refuses what it is told to, by the message's value, with what comes behind it.
type scripted struct {
	refuse map[string]*producer.Error
	each   bool // nothing is held back: a whole topic is refused, or a batch is
	calls  []string
}

// Produce keeps order as a producer does: by key.
func (w *scripted) Produce(_ context.Context, messages []*producer.Message) []producer.Result {
	results := make([]producer.Result, len(messages))
	var sent []string
	stopped := map[string]bool{}
	for i, m := range messages {
		lane := fmt.Sprintf("%s %d %s", m.Topic, m.Partition, m.Key)
		err := w.refuse[string(m.Value)]
		switch {
		case stopped[lane]:
			results[i] = producer.Result{NotSent: true, Err: &producer.Error{Text: "behind"}}
		case err != nil:
			results[i].Err, stopped[lane] = err, m.Key != nil && !w.each
		default:
			sent = append(sent, m.Topic+":"+string(m.Value))
		}
	}
	w.calls = append(w.calls, strings.Join(sent, " "))
	return results
}

// stuck is a wire on which nothing is sent in time, since a partition has no leader.
type stuck struct{}

func (stuck) Produce(_ context.Context, messages []*producer.Message) []producer.Result {
	results := make([]producer.Result, len(messages))
	for i := range results {
		results[i] = producer.Result{NotSent: true, Err: &producer.Error{Code: kafka.LeaderNotAvailable, Text: "no leader"}}
	}
	return results
}

// When nothing was sent, the first record of each key says why, and the others are behind it.
func TestNothingSent(t *testing.T) {
	_, made := parsed(t, settingsWith(`,"topic":"t"`))
	c := &courier{composer: made, judge: judging(true), wire: stuck{}}
	var got []string
	for _, o := range c.deliver(t.Context(), rows("a1", "b1", "a2", "1", "b2", "2")) {
		got = append(got, verdict(o))
	}
	const first, behind = "retryable key no_leader", "not_attempted behind"
	if want := []string{first, first, behind, first, behind, first}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// When several records of a key fail alike, the first says why and the others are behind it: they are not charged, and not
// buried. One that may be written says so.
func TestAllFail(t *testing.T) {
	_, made := parsed(t, settingsWith(`,"topic":"{route}"`))
	missing := &producer.Error{Class: producer.Permanent, Code: kafka.UnknownTopicOrPartition, Text: "missing"}
	lost := &producer.Error{Unknown: true, Code: kafka.RequestTimedOut, Text: "lost"}
	w := &scripted{each: true, refuse: map[string]*producer.Error{"a1": missing, "a2": missing, "1": missing, "2": missing, "b1": lost, "b2": lost}}
	c := &courier{composer: made, judge: judging(false), wire: w}
	var got []string
	for _, o := range c.deliver(t.Context(), rows("a1/x", "b1/x", "a2/x", "1/x", "b2/x", "2/x")) {
		got = append(got, verdict(o))
	}
	const first, behind, unsure = "permanent unknown_topic", "not_attempted behind", "retryable key unknown timeout"
	if want := []string{first, unsure, behind, first, unsure, first}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// rows makes records of texts such as "a1/t": a key, a value, and the topic where the settings ask the route for it.
func rows(texts ...string) []core.Record {
	var batch []core.Record
	for _, s := range texts {
		value, route, _ := strings.Cut(s, "/")
		r := core.Record{ID: value, Payload: []byte(value), Route: route, Deliveries: 1}
		if key := strings.TrimRight(value, "0123456789"); key != "" {
			r.Key, r.Keyed = key, true
		}
		batch = append(batch, r)
	}
	return batch
}

// TestOrder delivers batches: what is sent at once, and what is held back behind what was not delivered.
func TestOrder(t *testing.T) {
	permanent := &producer.Error{Class: producer.Permanent, Text: "refused"}
	const routed = `,"topic":"{route}"`
	for name, test := range map[string]struct {
		settings string
		rows     []core.Record
		refuse   []string
		calls    []string // what each call of the producer wrote
		want     string   // outcomes, by their first letters
	}{
		"one topic":           {`,"topic":"t"`, rows("a1", "b1", "a2", "1"), nil, []string{"t:a1 t:b1 t:a2 t:1"}, "dddd"},
		"nothing":             {`,"topic":"t"`, nil, nil, nil, ""},
		"refused":             {`,"topic":"t"`, rows("a1", "b1", "a2", "b2", "1", "2"), []string{"a1", "1"}, []string{"t:b1 t:b2 t:2"}, "pdndpd"},
		"several topics":      {routed, rows("a1/x", "a2/x", "a3/y", "b1/y", "a4/x", "b2/y"), nil, []string{"x:a1 x:a2 y:b1 y:b2", "y:a3", "x:a4"}, "dddddd"},
		"refused before":      {routed, rows("a1/x", "a2/y", "b1/x", "b2/y", "a3/x"), []string{"a1"}, []string{"x:b1", "y:b2"}, "pnddn"},
		"refused behind":      {routed, rows("a1/x", "a2/y", "a3/y", "a4/x"), []string{"a2"}, []string{"x:a1", ""}, "dpnn"},
		"no message":          {routed, rows("a1/x", "a2/no name", "a3/x", "b1/x", "/x"), nil, []string{"x:a1 x:b1 x:"}, "dpndd"},
		"unordered":           {routed, rows("1/x", "2/no name", "3/y", "4/x"), []string{"3"}, []string{"x:1 x:4"}, "dppd"},
		"another key":         {`,"topic":"t","key":"{id}"`, rows("a1", "a2", "b1"), nil, []string{"t:a1 t:b1", "t:a2"}, "ddd"},
		"one key for several": {`,"topic":"t","key":"all"`, rows("a1", "a2", "b1"), nil, []string{"t:a1 t:a2 t:b1"}, "ddd"},
		"no message key":      {`,"topic":"t","key":"{header:k|}"`, rows("a1", "a2", "1", "2"), []string{"a1"}, []string{"t:1 t:2"}, "pndd"},
		"partition, no key":   {`,"topic":"t","key":"{header:k|}","partition":"0"`, rows("a1", "a2"), nil, []string{"t:a1", "t:a2"}, "dd"},
	} {
		t.Run(name, func(t *testing.T) {
			_, made := parsed(t, settingsWith(test.settings))
			w := &scripted{refuse: map[string]*producer.Error{}}
			for _, value := range test.refuse {
				w.refuse[value] = permanent
			}
			c := &courier{composer: made, judge: judging(false), wire: w}
			got := ""
			for _, o := range c.deliver(t.Context(), test.rows) {
				got += o.Kind.String()[:1]
			}
			if got != test.want {
				t.Errorf("outcomes %s, want %s", got, test.want)
			}
			if !slices.Equal(w.calls, test.calls) {
				t.Errorf("calls %q, want %q", w.calls, test.calls)
			}
		})
	}
}
