package rabbitmq

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/connectd/connectd/core"
)

// server is a RabbitMQ as tests use it, with a virtual host of their own.
type server struct {
	t          testing.TB
	address    string // host:port
	user       string
	password   string
	management string
	vhost      string
}

// serverAt makes a virtual host in the server of these URLs.
func serverAt(t testing.TB, address, management string) *server {
	t.Helper()
	u := must(url.Parse(address))
	password, _ := u.User.Password()
	s := &server{t, u.Host, u.User.Username(), password, management, fmt.Sprintf("sink-%08x", rand.Uint32())}
	s.api(http.MethodPut, "vhosts/"+s.vhost, nil)
	t.Cleanup(func() { s.api(http.MethodDelete, "vhosts/"+s.vhost, nil) })
	s.api(http.MethodPut, "permissions/"+s.vhost+"/"+s.user, map[string]string{"configure": ".*", "write": ".*", "read": ".*"})
	return s
}

// allow gives a user the right to write, and no other.
func (s *server) allow(user, write string) {
	s.t.Helper()
	s.api(http.MethodPut, "permissions/"+s.vhost+"/"+user, map[string]string{"configure": "^$", "write": write, "read": "^$"})
}

// setPassword makes a user, or changes its password.
func (s *server) setPassword(user, password string) {
	s.t.Helper()
	s.api(http.MethodPut, "users/"+user, map[string]string{"password": password, "tags": ""})
	s.t.Cleanup(func() { s.call(http.MethodDelete, "users/"+user, nil) })
}

// api calls the server's HTTP API, which must succeed.
func (s *server) api(method, path string, body any) []byte {
	s.t.Helper()
	answer, err := s.call(method, path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer
}

func (s *server) call(method, path string, body any) ([]byte, error) {
	request := must(http.NewRequest(method, s.management+"/api/"+path, bytes.NewReader(must(json.Marshal(body)))))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	answer := must(io.ReadAll(response.Body))
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	return answer, nil
}

// do runs something on a channel of its own.
func (s *server) do(f func(ch *amqp.Channel) error) {
	s.t.Helper()
	config := amqp.Config{Vhost: s.vhost, SASL: []amqp.Authentication{&amqp.PlainAuth{Username: s.user, Password: s.password}}}
	c, err := amqp.DialConfig("amqp://"+s.address, config)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	if err := f(must(c.Channel())); err != nil {
		s.t.Fatal(err)
	}
}

// exchange makes a topic exchange and a queue that is bound to it with every routing key, both of the name.
func (s *server) exchange(name, kind string, arguments amqp.Table) {
	s.t.Helper()
	s.do(func(ch *amqp.Channel) error {
		all := amqp.Table{amqp.QueueTypeArg: kind}
		for name, value := range arguments {
			all[name] = value
		}
		_, err := ch.QueueDeclare(name, true, false, false, false, all)
		return errors.Join(err,
			ch.ExchangeDeclare(name, "topic", true, false, false, false, nil),
			ch.QueueBind(name, "#", name, false, nil))
	})
}

// take removes all messages from a queue.
func (s *server) take(queue string) []amqp.Delivery {
	s.t.Helper()
	var all []amqp.Delivery
	s.do(func(ch *amqp.Channel) error {
		for {
			d, ok, err := ch.Get(queue, true)
			if err != nil || !ok {
				return err
			}
			all = append(all, d)
		}
	})
	return all
}

// settings are a sink's for the server, with others.
func (s *server) settings(address, changes string) []byte {
	s.t.Helper()
	base := fmt.Sprintf(`{"urls":["amqp://%s"],"username":%q,"password":%q,"vhost":%q,"reconnect_backoff":{"min":"10ms","max":"200ms"}}`,
		address, s.user, s.password, s.vhost)
	return merged(s.t, base, changes)
}

// read makes a record of a message, as a consumer does.
func read(t testing.TB, d amqp.Delivery) core.Record {
	t.Helper()
	r := core.Record{ID: d.MessageId, Type: d.Type, Payload: d.Body}
	var err error
	for _, name := range sortedNames(d.Headers) {
		value := d.Headers[name]
		switch name {
		case headerKey:
			r.Key, r.Keyed = value.(string), true
		case headerRoute:
			r.Route = value.(string)
		case headerDelivery:
			r.Deliveries = int(value.(int64))
		case headerEpoch:
			r.Epoch = value.(int64)
		case headerDuplicate, "x-delivery-count": // the latter is from a quorum queue
		case headerCreatedAt:
			if r.CreatedAt, err = time.Parse(time.RFC3339, value.(string)); err != nil {
				t.Errorf("%s: %v", headerCreatedAt, err)
			}
		default:
			r.Headers = append(r.Headers, core.Header{Name: name, Value: value.(string)})
		}
	}
	if _, marked := d.Headers[headerDuplicate]; r.PossibleDuplicate() && !marked {
		t.Errorf("record %s is delivery %d and has no mark", r.ID, r.Deliveries)
	}
	if d.DeliveryMode != amqp.Persistent || d.Timestamp.Unix() != r.CreatedAt.Unix() {
		t.Errorf("record %s: delivery mode %d, timestamp %v", r.ID, d.DeliveryMode, d.Timestamp)
	}
	return r
}

func sortedNames(headers amqp.Table) []string {
	var names []string
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func sortHeaders(r core.Record) core.Record {
	r.Headers = slices.Clone(r.Headers)
	slices.SortFunc(r.Headers, func(a, b core.Header) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// depth is how many messages a queue holds; 0 while the server is away.
func (s *server) depth(queue string) int {
	config := amqp.Config{Vhost: s.vhost, SASL: []amqp.Authentication{&amqp.PlainAuth{Username: s.user, Password: s.password}}}
	c, err := amqp.DialConfig("amqp://"+s.address, config)
	if err != nil {
		return 0
	}
	defer c.Close()
	ch, err := c.Channel()
	if err != nil {
		return 0
	}
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return 0
	}
	return q.Messages
}
