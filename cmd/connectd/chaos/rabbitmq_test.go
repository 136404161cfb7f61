//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/connectd/connectd/scripts/services"
)

const (
	rabbitQueue = "chaos"
	prefetch    = 10
)

// rabbitReceiver is a consumer of a durable queue, straight at the server, who acknowledges every message by itself.
type rabbitReceiver struct {
	servers *services.Servers
	at      *url.URL
	manager string
	done    chan struct{}
	ended   chan struct{}

	mu      sync.Mutex
	stopped chan struct{} // closed when messages are taken again; nil while they are
	// unsure are the last messages that were taken: the server may not know so of them, and gives them again when the
	// connection was lost.
	unsure []reception
	list   []reception
	err    error
}

func startRabbit(t *testing.T) *rabbitReceiver {
	t.Helper()
	servers := services.Own(t, "rabbitmq")
	at, err := url.Parse(servers.RabbitMQ())
	if err != nil {
		t.Fatal("the address of RabbitMQ is no URL")
	}
	r := &rabbitReceiver{servers: servers, at: at, manager: servers.RabbitMQManagement(), done: make(chan struct{}), ended: make(chan struct{})}
	conn, err := amqp.Dial(at.String())
	must(t, err)
	channel, err := conn.Channel()
	must(t, err)
	_, err = channel.QueueDeclare(rabbitQueue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
	must(t, err)
	must(t, conn.Close())
	go r.follow()
	t.Cleanup(func() {
		close(r.done)
		<-r.ended
	})
	return r
}

func (r *rabbitReceiver) yaml() string {
	password, _ := r.at.User.Password()
	return fmt.Sprintf(`plugin: rabbitmq, urls: ["${%s}"], username: %q, password: %q, routing_key: "{type}", on_unroutable: permanent, max_message_bytes: %d,
      heartbeat: 2s, timeouts: {connect: 1s, confirm: %v}, reconnect_backoff: {min: 50ms, max: 1s}`,
		targetVariable, r.at.User.Username(), password, largest, requestTimeout)
}
func (r *rabbitReceiver) address() string              { return r.at.Host }
func (r *rabbitReceiver) target(address string) string { return "amqp://" + address }
func (r *rabbitReceiver) name() string                 { return r.servers.Version("rabbitmq") }

// follow consumes until the end, on one connection after another: the server comes and goes.
func (r *rabbitReceiver) follow() {
	defer close(r.ended)
	for {
		r.consume()
		select {
		case <-r.done:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// consume consumes as long as a connection lives. What is wrong with it is no matter: the next one is tried.
func (r *rabbitReceiver) consume() {
	conn, err := amqp.DialConfig(r.at.String(), amqp.Config{Dial: amqp.DefaultDial(5 * time.Second), Heartbeat: 5 * time.Second})
	if err != nil {
		return
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return
	}
	if channel.Qos(prefetch, 0, false) != nil {
		return
	}
	messages, err := channel.Consume(rabbitQueue, "", false, true, false, false, nil)
	if err != nil {
		return
	}
	r.mu.Lock()
	again := slices.Clone(r.unsure)
	r.mu.Unlock()
	for {
		select {
		case m, open := <-messages:
			if !open || !r.take(&m, &again) || m.Ack(false) != nil {
				return
			}
		case <-r.done:
			return
		}
	}
}

// take notes a message, or knows it as one that was taken on the connection before; again holds those.
func (r *rabbitReceiver) take(m *amqp.Delivery, again *[]reception) bool {
	r.mu.Lock()
	stopped := r.stopped
	r.mu.Unlock()
	if stopped != nil {
		select {
		case <-stopped:
		case <-r.done:
			return false
		}
	}
	one, err := readRecord(m.Body, func(name string) string {
		if name == "id" {
			return m.MessageId
		}
		if value, there := m.Headers["connectd-"+name]; there {
			return fmt.Sprint(value)
		}
		return ""
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("message %q %v: %w", m.MessageId, m.Headers, err)
	}
	if i := slices.Index(*again, one); m.Redelivered && i >= 0 {
		*again = slices.Delete(*again, i, i+1)
		return true
	}
	r.unsure = append(r.unsure, one)
	r.unsure = r.unsure[max(0, len(r.unsure)-2*prefetch):]
	one.At = time.Now()
	r.list = append(r.list, one)
	return true
}

// received waits until the queue is empty, and all of it acknowledged.
func (r *rabbitReceiver) received() ([]reception, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		n, err := r.waiting(ctx)
		switch {
		case err != nil:
			return nil, fmt.Errorf("ask for the queue's length: %w", err)
		case n == 0:
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.list, r.err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// waiting counts the messages that the server has, by its log: its statistics come late.
func (r *rabbitReceiver) waiting(ctx context.Context) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	out, err := r.servers.Try("rabbitmqctl", "list_queues", "--quiet", "--no-table-headers", "messages")
	if err == nil {
		_, err = fmt.Sscan(strings.TrimSpace(out), &n)
	}
	return n, err
}

func (r *rabbitReceiver) hinder(how what) (mend func() error, err error) {
	switch how {
	case targetKill, targetRestart:
		return breakServer(r.servers, "rabbitmq", how == targetKill)
	case targetSlow: // it is short of memory, as it believes, and reads from no publisher
		err = r.memory("0.000001")
		return func() error { return r.memory("0.4") }, err
	default: // the queue is full
		r.stop(true)
		mend = func() error {
			r.stop(false)
			return r.policy(http.MethodDelete, nil)
		}
		return mend, r.policy(http.MethodPut, map[string]any{"pattern": rabbitQueue, "apply-to": "queues", "definition": map[string]any{"max-length": 0, "overflow": "reject-publish"}})
	}
}

// stop lets messages wait, or takes them again.
func (r *rabbitReceiver) stop(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if on {
		r.stopped = make(chan struct{})
	} else {
		close(r.stopped)
		r.stopped = nil
	}
}

func (r *rabbitReceiver) memory(share string) error {
	_, err := r.servers.Try("rabbitmqctl", "set_vm_memory_high_watermark", share)
	return err
}

// policy makes or removes the policy that limits the queue.
func (r *rabbitReceiver) policy(method string, policy map[string]any) error {
	text, err := json.Marshal(policy)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, r.manager+"/api/policies/%2F/full", bytes.NewReader(text))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%s the policy: %w", method, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		words, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%s the policy: %s %s", method, answer.Status, words)
	}
	return nil
}
