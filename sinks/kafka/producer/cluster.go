package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// errUnreachable is the cause when no broker answers, which may pass.
var errUnreachable = errors.New("no broker answers")

// flight is one question to the cluster, for all who want to know.
type flight struct {
	landed chan struct{}
	err    *Error // valid when landed is closed
}

// refresh asks the cluster for brokers, topics and leaders, unless it has answered since the caller saw the generation.
// Those who ask at the same time share one question.
func (p *Producer) refresh(ctx context.Context, seen uint64) *Error {
	p.mu.Lock()
	if p.generation != seen {
		p.mu.Unlock()
		return nil
	}
	f := p.takeOff()
	p.mu.Unlock()
	select {
	case <-f.landed:
		return f.err
	case <-ctx.Done():
		return &Error{Class: Sink, Text: "no broker has answered in time", Err: errors.Join(errUnreachable, context.Cause(ctx))}
	}
}

// takeOff begins a question if none is under way. It is called with mu held, by somebody for whom the producer stays open.
func (p *Producer) takeOff() *flight {
	if p.flight != nil {
		return p.flight
	}
	f := &flight{landed: make(chan struct{})}
	p.flight = f
	p.work.Add(1)
	go func() {
		defer p.work.Done()
		defer close(f.landed)
		f.err = p.fly()
	}()
	return f
}

func (p *Producer) fly() *Error {
	p.mu.Lock()
	names := make([]string, 0, len(p.topics))
	for name, t := range p.topics {
		if t.users > 0 || t.code == 0 { // others are asked for when somebody wants them again
			names = append(names, name)
		}
	}
	p.mu.Unlock()
	response, err := p.askAny(p.ctx, &metadata.Request{TopicNames: names})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flight = nil
	if err != nil {
		if p.down.IsZero() {
			p.down = time.Now()
		}
		return err
	}
	p.learn(response.(*metadata.Response))
	return nil
}

// hopeless reports whether it is time to tell the caller instead of trying again.
func (p *Producer) hopeless(err *Error) bool {
	if err.Class != Sink || !errors.Is(err, errUnreachable) {
		return err.Class == Sink
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.down.IsZero() && time.Since(p.down) >= unreachableAfter
}

// askAny asks one broker after another until one answers; those that could not be reached lately come last. When none
// answers the error's class is Sink.
func (p *Producer) askAny(ctx context.Context, request protocol.Message) (protocol.Message, *Error) {
	var worst *Error
	for _, b := range p.candidates() {
		response, _, err := b.ask(ctx, request)
		if err == nil {
			return response, nil
		}
		if worst == nil || worst.Class != Sink {
			worst = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	if worst.Class == Sink {
		return nil, worst
	}
	return nil, &Error{Class: Sink, Code: worst.Code, Text: "no broker answers: " + worst.Text, Err: errors.Join(errUnreachable, worst.Err)}
}

func (p *Producer) candidates() []*broker {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*broker
	known := map[string]bool{}
	for _, b := range p.brokers {
		all = append(all, b)
		known[b.addr] = true
	}
	for _, b := range p.seeds {
		if !known[b.addr] {
			all = append(all, b)
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	failed := make(map[*broker]time.Time, len(all))
	for _, b := range all {
		b.mu.Lock()
		failed[b] = b.failed
		b.mu.Unlock()
	}
	slices.SortStableFunc(all, func(a, b *broker) int { return failed[a].Compare(failed[b]) })
	return all
}

// initProducerID asks for an id that nobody else has, for one lane after another: many may begin at once. Numbering begins in its first epoch.
func (p *Producer) initProducerID(ctx context.Context) (numbering, *Error) {
	select {
	case p.ids <- struct{}{}:
		defer func() { <-p.ids }()
	case <-ctx.Done():
		return unnumbered, &Error{Class: Retry, Text: "no producer id in time", Err: context.Cause(ctx)}
	}
	response, err := p.askAny(ctx, &initproducerid.Request{ProducerID: -1, ProducerEpoch: -1, TransactionTimeoutMs: 60_000})
	if err != nil {
		return unnumbered, err
	}
	r := response.(*initproducerid.Response)
	if r.ErrorCode == 0 {
		return numbering{id: r.ProducerID, epoch: r.ProducerEpoch}, nil
	}
	e := &Error{Class: Retry, Code: kafka.Error(r.ErrorCode), Text: fmt.Sprintf("ask for a producer id: %v", kafka.Error(r.ErrorCode))}
	if refusesIDs(e.Code) {
		e.Class = Sink
		e.Text += "; " + advice(kafka.ClusterAuthorizationFailed)
	}
	return unnumbered, e
}

// refusesIDs reports whether a broker that says so does not give ids to this client.
func refusesIDs(code kafka.Error) bool {
	return code == kafka.ClusterAuthorizationFailed || code == kafka.TransactionalIDAuthorizationFailed || code == kafka.UnsupportedVersion
}

// create makes topics, and gives the routes of those that cannot be made their error.
func (p *Producer) create(ctx context.Context, names []string, routes map[string]*route) {
	request := &createtopics.Request{TimeoutMs: int32(p.cfg.RequestTimeout.Milliseconds())}
	for _, name := range names {
		request.Topics = append(request.Topics, createtopics.RequestTopic{
			Name: name, NumPartitions: orDefault(p.cfg.CreateTopics.Partitions), ReplicationFactor: int16(orDefault(p.cfg.CreateTopics.Replication)),
		})
	}
	p.mu.Lock()
	controller := p.brokers[p.controller]
	p.mu.Unlock()
	var response protocol.Message
	var err *Error
	if controller != nil {
		response, _, err = controller.ask(ctx, request)
	} else {
		response, err = p.askAny(ctx, request)
	}
	if err != nil {
		for _, name := range names {
			routes[name].err = &Error{Class: Retry, Code: err.Code, Text: fmt.Sprintf("create topic %q: %s", name, err.Text), Err: err.Err}
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range response.(*createtopics.Response).Topics {
		r := routes[t.Name]
		if r == nil {
			continue
		}
		if code := kafka.Error(t.ErrorCode); code != 0 && code != kafka.TopicAlreadyExists {
			r.err = creationError(t.Name, code, t.ErrorMessage)
			continue
		}
		p.cfg.Log.Info("topic created", "topic", t.Name)
		r.topic.asked = false
	}
}

func creationError(name string, code kafka.Error, text string) *Error {
	e := &Error{Class: Sink, Code: code, Text: fmt.Sprintf("create topic %q: %v", name, code)}
	if text != "" {
		e.Text += ": " + text
	}
	switch code {
	case kafka.InvalidTopic:
		e.Class = Permanent
	case kafka.RequestTimedOut, kafka.NotController, kafka.ThrottlingQuotaExceeded:
		e.Class = Retry
	case kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed:
		e.Text += "; grant this client Create, or create the topic"
	}
	return e
}

func orDefault(n int) int32 {
	if n <= 0 {
		return -1
	}
	return int32(n)
}

func hostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
