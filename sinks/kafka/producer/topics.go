package producer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

const (
	// How many topics are remembered. Beyond it a tenth is forgotten: those that were not used for longest.
	maxTopics = 10_000
	// How long a call waits for a topic that is being created to get its leaders.
	settleTime = 5 * time.Second
	// How long a topic is taken for missing before it is asked for again.
	missingRecheck = 500 * time.Millisecond
)

// topic is what is known of a topic. All but its name is guarded by the producer's mu. The slices are never changed, only
// replaced.
type topic struct {
	name    string
	asked   bool        // the cluster has said what it knows
	checked time.Time   // when
	code    kafka.Error // why it cannot be used
	missing time.Time   // since when it is known not to exist; zero while it does
	lanes   []*lane     // by partition
	all     []*lane     // those of partitions that are gone too: should they come back, their numbers go on
	leaders []int32     // by partition
	users   int         // calls
	used    time.Time
	turn    int // the partition where the next call's unkeyed messages begin
}

// resolve finds the topics of the messages: each has its lanes, or why it has none. It asks the cluster when it must. The
// topics are in use until forget.
func (p *Producer) resolve(ctx context.Context, messages []*Message) map[string]*route {
	routes := p.use(messages)
	began := time.Now()
	created := map[string]bool{}
	pause := backoff{min: p.cfg.BackoffMin, max: p.cfg.BackoffMax}
	for {
		open, missing, seen := p.settle(routes, time.Since(began) < settleTime, created)
		if len(missing) > 0 {
			for _, name := range missing {
				created[name] = true
			}
			p.create(ctx, missing, routes)
			continue
		}
		if len(open) == 0 {
			return routes
		}
		err := p.refresh(ctx, seen)
		if err == nil && p.fresh(open) {
			continue
		}
		if err != nil && p.hopeless(err) || ctx.Err() != nil || !sleep(ctx, pause.next()) {
			if err == nil {
				err = &Error{Class: Retry, Code: kafka.LeaderNotAvailable, Text: "the topic has no leaders yet"}
			}
			for _, r := range open {
				r.err = err
			}
			return routes
		}
	}
}

// use marks the topics as used by a call, and begins to ask for news where the last are too old.
func (p *Producer) use(messages []*Message) map[string]*route {
	routes := map[string]*route{}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	last := ""
	for i, m := range messages {
		if i > 0 && m.Topic == last || routes[m.Topic] != nil {
			last = m.Topic
			continue
		}
		last = m.Topic
		t := p.topics[m.Topic]
		if t == nil {
			p.makeRoom()
			t = &topic{name: m.Topic}
			p.topics[m.Topic] = t
		}
		t.users++
		t.used = now
		t.turn++
		if t.code != 0 && now.Sub(t.checked) > missingRecheck {
			t.asked = false
		}
		routes[m.Topic] = &route{topic: t, turn: t.turn}
	}
	if now.Sub(p.refreshed) > p.cfg.MetadataTTL {
		p.takeOff()
	}
	return routes
}

// forget ends a call's use of its topics.
func (p *Producer) forget(routes map[string]*route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range routes {
		r.topic.users--
	}
}

// settle completes the routes whose topics are known. It returns those that have to be asked for, the topics to create,
// and what the cluster was last asked.
func (p *Producer) settle(routes map[string]*route, patient bool, created map[string]bool) (open []*route, missing []string, seen uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, r := range routes {
		t := r.topic
		switch {
		case r.err != nil || r.lanes != nil:
		case !t.asked:
			open = append(open, r)
		case t.code == 0 && len(t.lanes) > 0:
			r.lanes, r.able = t.lanes, t.able()
		case t.vanishing():
			r.lanes, r.able = t.lanes, t.lanes // they find out
		case t.code == kafka.UnknownTopicOrPartition && p.cfg.CreateTopics != nil && !created[name]:
			missing = append(missing, name)
		case patient && (created[name] || t.code == kafka.LeaderNotAvailable || t.code == 0):
			t.asked = false
			open = append(open, r)
		default:
			r.err = p.topicError(t)
		}
	}
	return open, missing, p.generation
}

// fresh reports whether the cluster has now said something about all of these.
func (p *Producer) fresh(routes []*route) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(routes, func(r *route) bool {
		return !r.topic.asked || r.topic.code != 0 || len(r.topic.lanes) == 0
	})
}

// able is the lanes that have a leader, or all if none has. It is called with the producer's mu held.
func (t *topic) able() []*lane {
	if !slices.Contains(t.leaders, -1) {
		return t.lanes
	}
	var able []*lane
	for i, l := range t.lanes {
		if t.leaders[i] >= 0 {
			able = append(able, l)
		}
	}
	if len(able) == 0 {
		return t.lanes
	}
	return able
}

// vanishing reports whether a topic that was there is missing only since a moment: a broker that starts may not know of
// it yet. It is called with the producer's mu held.
func (t *topic) vanishing() bool {
	return t.code == kafka.UnknownTopicOrPartition && len(t.lanes) > 0 && time.Since(t.missing) < vanishedAfter
}

// topicError is why a topic cannot be used. It is called with mu held.
func (p *Producer) topicError(t *topic) *Error {
	code := t.code
	if code == 0 {
		code = kafka.LeaderNotAvailable // a topic without partitions is being made
	}
	e := &Error{Class: Retry, Code: code, Text: fmt.Sprintf("topic %q: %v", t.name, code)}
	switch t.code {
	case kafka.UnknownTopicOrPartition:
		e.Class, e.Text = UnknownTopic, fmt.Sprintf("topic %q does not exist", t.name)
		if grace := p.cfg.UnknownTopicGrace; grace > 0 && !t.missing.IsZero() && time.Since(t.missing) >= grace {
			e.Class, e.Text = Permanent, fmt.Sprintf("topic %q does not exist, for more than %v now", t.name, grace)
		}
	case kafka.InvalidTopic:
		e.Class, e.Text = Permanent, fmt.Sprintf("%q cannot be the name of a topic", t.name)
	case kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed:
		e.Class = Sink
	}
	if a := advice(t.code); a != "" {
		e.Text += "; " + a
	}
	return e
}

// learn takes what the cluster says of itself. It is called with mu held.
func (p *Producer) learn(r *metadata.Response) {
	now := time.Now()
	p.generation++
	p.refreshed, p.down, p.controller = now, time.Time{}, r.ControllerID
	brokers := make(map[int32]*broker, len(r.Brokers))
	for _, b := range r.Brokers {
		addr := hostPort(b.Host, b.Port)
		if known := p.brokers[b.NodeID]; known != nil && known.addr == addr {
			brokers[b.NodeID] = known
		} else {
			brokers[b.NodeID] = p.brokerAt(addr)
		}
	}
	for id, b := range p.brokers {
		if brokers[id] != b && !slices.Contains(p.seeds, b) {
			b.close()
		}
	}
	p.brokers = brokers
	for _, said := range r.Topics {
		if t := p.topics[said.Name]; t != nil {
			p.learnTopic(t, said, now)
		}
	}
}

// brokerAt is the broker at an address, which may be one of the configuration's: it shares their connections.
func (p *Producer) brokerAt(addr string) *broker {
	for _, b := range p.seeds {
		if b.addr == addr {
			return b
		}
	}
	return &broker{p: p, addr: addr}
}

func (p *Producer) learnTopic(t *topic, said metadata.ResponseTopic, now time.Time) {
	t.asked, t.checked, t.code = true, now, kafka.Error(said.ErrorCode)
	if t.code != kafka.UnknownTopicOrPartition {
		t.missing = time.Time{}
	} else if t.missing.IsZero() {
		t.missing = now
	}
	if t.code != 0 {
		return
	}
	leaders := make([]int32, len(said.Partitions))
	for i := range leaders {
		leaders[i] = -1
	}
	for _, partition := range said.Partitions {
		if i := int(partition.PartitionIndex); i >= 0 && i < len(leaders) {
			leaders[i] = partition.LeaderID
		}
	}
	t.leaders = leaders
	if had := len(t.lanes); had != len(leaders) {
		if had > 0 {
			p.cfg.Log.Warn("the number of a topic's partitions has changed: keys move to other partitions",
				"topic", t.name, "partitions", len(leaders), "before", had)
		}
		all := slices.Clone(t.all)
		for i := len(all); i < len(leaders); i++ {
			next := unnumbered
			if p.numbered {
				next.id = noID
			}
			all = append(all, &lane{p: p, topic: t, partition: int32(i), next: next})
		}
		t.all, t.lanes = all, all[:len(leaders):len(leaders)]
	}
}

// makeRoom forgets topics that were not used for longest. It is called with mu held.
func (p *Producer) makeRoom() {
	if len(p.topics) < maxTopics {
		return
	}
	var idle []*topic
	for _, t := range p.topics {
		if t.users == 0 && !slices.ContainsFunc(t.all, (*lane).busy) {
			idle = append(idle, t)
		}
	}
	slices.SortFunc(idle, func(a, b *topic) int { return a.used.Compare(b.used) })
	for _, t := range idle[:min(len(idle), maxTopics/10)] {
		delete(p.topics, t.name)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
