package publisher

import (
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestCheck(t *testing.T) {
	p := New(Config{})
	name := "somebody"
	p.user.Store(&name)
	long := strings.Repeat("x", 256)
	nested := any("x")
	for range 40 {
		nested = []any{nested}
	}
	for _, c := range []struct {
		name   string
		change func(*Message)
		want   string // in the error; "" for none
	}{
		{"nothing", func(*Message) {}, ""},
		{"255 bytes", func(m *Message) { m.RoutingKey = long[:255] }, ""},
		{"exchange", func(m *Message) { m.Exchange = long }, "the exchange has 256 bytes"},
		{"routing key", func(m *Message) { m.RoutingKey = long }, "the routing key has 256 bytes"},
		{"message id", func(m *Message) { m.Publishing.MessageId = long }, "the message id has 256 bytes"},
		{"correlation id", func(m *Message) { m.Publishing.CorrelationId = long }, "the correlation id has"},
		{"app id", func(m *Message) { m.Publishing.AppId = long }, "the app id has"},
		{"type", func(m *Message) { m.Publishing.Type = "\xff" }, "the type is not UTF-8"},
		{"content type", func(m *Message) { m.Publishing.ContentType = long }, "the content type has"},
		{"content encoding", func(m *Message) { m.Publishing.ContentEncoding = long }, "the content encoding has"},
		{"reply to", func(m *Message) { m.Publishing.ReplyTo = long }, "the reply to has"},
		{"expiration", func(m *Message) { m.Publishing.Expiration = "60000" }, ""},
		{"expiration in words", func(m *Message) { m.Publishing.Expiration = "1m" }, "the expiration is no number"},
		{"expiration below 0", func(m *Message) { m.Publishing.Expiration = "-1" }, "the expiration is no number"},
		{"expiration too long", func(m *Message) { m.Publishing.Expiration = "4294967296" }, "the expiration is no number"},
		{"own user", func(m *Message) { m.Publishing.UserId = "somebody" }, ""},
		{"other user", func(m *Message) { m.Publishing.UserId = "else" }, "user id"},
		{"delivery mode", func(m *Message) { m.Publishing.DeliveryMode = 3 }, "delivery mode"},
		{"timestamp", func(m *Message) { m.Publishing.Timestamp = time.Unix(-1, 0) }, "before 1970"},
		{"CC", func(m *Message) { m.Publishing.Headers["CC"] = []any{"a", "b"} }, ""},
		{"CC as text", func(m *Message) { m.Publishing.Headers["CC"] = "a" }, "CC is no array"},
		{"BCC of numbers", func(m *Message) { m.Publishing.Headers["BCC"] = []any{int32(1)} }, "BCC is no array"},
		{"CC too long", func(m *Message) { m.Publishing.Headers["CC"] = []any{long} }, "CC is no array"},
		{"a name", func(m *Message) { m.Publishing.Headers[long] = "" }, "the name of a header has 256 bytes"},
		{"a type", func(m *Message) { m.Publishing.Headers["h"] = uint64(1) }, `the header "h" has a value of type uint64`},
		{"a large int", func(m *Message) { m.Publishing.Headers["h"] = 1 << 40 }, "more than 32 bits"},
		{"no number", func(m *Message) { m.Publishing.Headers["h"] = math.NaN() }, "no finite number"},
		{"an infinite number", func(m *Message) { m.Publishing.Headers["h"] = []any{float32(math.Inf(-1))} }, "no finite number"},
		{"a direct reply", func(m *Message) { m.RoutingKey = "amq.rabbitmq.reply-to.g1h2AA.x" }, "direct reply-to"},
		{"no direct reply", func(m *Message) { m.Exchange, m.RoutingKey = "shop", "amq.rabbitmq.reply-to.g1h2AA.x" }, ""},
		{"a type within", func(m *Message) { m.Publishing.Headers["h"] = []any{amqp.Table{"i": struct{}{}}} }, `"i" has a value of type struct`},
		{"nested", func(m *Message) { m.Publishing.Headers["h"] = nested }, "nested more than 32 deep"},
		{"large headers", func(m *Message) { m.Publishing.Headers["h"] = strings.Repeat("x", 131072) }, "frame_max"},
		{"a large body", func(m *Message) { m.Publishing.Body = make([]byte, 1<<20) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &Message{Publishing: amqp.Publishing{Headers: amqp.Table{}}}
			c.change(m)
			err := p.Check(m)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

// The size that Check computes is that of the frame which the library writes, apart from the reserve and the fields that
// are left out when they are empty.
func TestHeaderSizeIsThatOnTheWire(t *testing.T) {
	content := amqp.Publishing{
		Headers: amqp.Table{
			"nil": nil, "bool": true, "byte": byte(1), "int8": int8(1), "int16": int16(1), "uint16": uint16(1), "int": 1, "int32": int32(1),
			"uint32": uint32(1), "int64": int64(1), "float32": float32(1), "float64": 1.5, "time": time.Unix(1, 0),
			"decimal": amqp.Decimal{}, "string": "text", "bytes": []byte("bytes"), "array": []any{"a", int32(1), []any{}},
			"table": amqp.Table{"x": "y", "z": amqp.Table{}},
		},
		ContentType: "a", ContentEncoding: "bc", DeliveryMode: 2, Priority: 1, CorrelationId: "def", ReplyTo: "g", Expiration: "1",
		MessageId: "hi", Timestamp: time.Unix(1, 0), Type: "j", UserId: "k", AppId: "l",
	}
	size, err := headerSize(&content)
	must(t, err)
	b := shared(t)
	queue := b.queue(nil)
	c := configFor(t, rabbit(t))
	c.Lanes = 1
	p := opened(t, c)
	user, _, _ := c.Credentials()
	content.UserId = user
	size += len(user) - 1

	// The broker closes the connection for a byte too much. It does not count the eight bytes around a frame.
	const reserve, around = 64, 8
	room := int(p.frameMax.Load()) - (size - reserve) + around
	content.Headers["string"] = "text" + strings.Repeat("x", room)
	p.frameMax.Store(1 << 30)
	m := &Message{RoutingKey: queue, Mandatory: true, Publishing: content}
	if got := outcomes(publish(t, p, m)); got[0] != "ok" {
		t.Fatal(got)
	}
	content.Headers["string"] = "text" + strings.Repeat("x", room+1)
	if got := outcomes(publish(t, p, m)); got[0] != "connection?" {
		t.Fatal(got)
	}
}

func TestBlames(t *testing.T) {
	for _, c := range []struct {
		text, exchange string
		want           bool
	}{
		{"NOT_FOUND - no exchange 'x' in vhost '/'", "x", true},
		{"NOT_FOUND - no exchange 'x' in vhost '/'", "", false},
		{"NOT_FOUND - no exchange 'x' in vhost '/'", "x' in vhost", false},
		{"NOT_FOUND - no exchange 'x' in vhost '/other'", "x", false},
		{"NOT_FOUND - no exchange 'a'b' in vhost '/'", "a", false},
		{"NOT_FOUND - no exchange 'a'b' in vhost '/'", "a'b", true},
		{"NOT_FOUND - no exchange 'z exchange 'x' in vhost '/' in vhost '/'", "x", false},
		{"NOT_FOUND - no exchange 'x' in vhost '/' in vhost '/'", "x", false},
		{"ACCESS_REFUSED - access to exchange 'x' in vhost '/' refused for user 'u'", "x", true},
		{"ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'u'", "", true},
		{"ACCESS_REFUSED - cannot publish to internal exchange 'x' in vhost '/'", "x", true},
		{"ACCESS_REFUSED - access to topic 'r' in exchange 'x' in vhost '/' refused for user 'u'", "x", false},
		{"NOT_FOUND - no exchange 'x' in vh", "x", false},
		{"PRECONDITION_FAILED - invalid expiration", "", false},
	} {
		if got := blames(c.text, c.exchange, "/"); got != c.want {
			t.Errorf("%q, %q: %v", c.text, c.exchange, got)
		}
	}
}

func TestAReturnIsFoundAgain(t *testing.T) {
	message := func(id, body string, mandatory bool, headers amqp.Table) *item {
		return &item{message: &Message{Exchange: "x", RoutingKey: "r", Mandatory: mandatory,
			Publishing: amqp.Publishing{MessageId: id, Body: []byte(body), Headers: headers}}}
	}
	var f flight
	for _, it := range []*item{
		message("same", "one", true, nil),
		message("same", "two", false, nil), // cannot be returned
		message("same", "two", true, amqp.Table{"n": 1, "BCC": []any{"b"}, "at": time.Unix(5, 7)}),
		message("same", "two", true, amqp.Table{"n": 2}),
		message("gone", "three", true, nil),
	} {
		f.add(it, nil, time.Time{})
	}
	f.all[4].item = nil // its call has given it up
	back := func(id, body string, headers amqp.Table) int {
		e := f.find(&amqp.Return{Exchange: "x", RoutingKey: "r", MessageId: id, Body: []byte(body), Headers: headers})
		for i := range f.all {
			if e == &f.all[i] {
				return i
			}
		}
		return -1
	}
	for _, c := range []struct{ got, want int }{
		{back("same", "one", nil), 0},
		{back("same", "two", amqp.Table{"n": int32(2)}), 3},
		{back("same", "two", amqp.Table{"n": int32(1), "at": time.Unix(5, 0), "added": "by the broker"}), 2},
		{back("same", "two", amqp.Table{"n": int32(3)}), 2}, // changed by the broker: the first
		{back("gone", "anything", nil), 4},
		{back("same", "three", nil), -1},
		{back("other", "one", nil), -1},
	} {
		if c.got != c.want {
			t.Errorf("got %d, want %d", c.got, c.want)
		}
	}
}

// An entry that is settled stays listed for a while.
func TestACallGivesUpWhatIsOpen(t *testing.T) {
	messages := []*Message{{Key: "a", Keyed: true}, {Key: "b", Keyed: true}, {Key: "b", Keyed: true}, {Key: "c", Keyed: true}}
	c := newCall(messages, make([]Result, len(messages)))
	l := newLane(&session{}, 10)
	for _, i := range []int{1, 0, 3} {
		l.flight.add(&c.items[i], nil, time.Time{})
	}
	if next := l.flight.settle(&l.flight.all[0], nil); next != &c.items[2] {
		t.Fatal("not the key's next message")
	}
	l.ready = append(l.ready, &c.items[2])
	l.flight.compact()
	l.drop(c)
	<-c.done
	if got := fmt.Sprint(outcomes(c.taken())); got != "[timeout? ok not_attempted timeout?]" {
		t.Fatal(got)
	}
}

func TestBackoff(t *testing.T) {
	b := Backoff{Min: time.Second, Max: 10 * time.Second}
	for n, want := range []float64{1, 2, 4, 8, 10, 10} {
		if got := b.wait(n, 1); got.Seconds() != want {
			t.Errorf("round %d: %v", n, got)
		}
	}
	if got := b.wait(1000, 0.5); got != 5*time.Second {
		t.Error(got)
	}
}

func TestErrorsAreForPeople(t *testing.T) {
	for err, want := range map[error]string{
		&net.OpError{Op: "dial", Err: fmt.Errorf("no route")}: "connection:",
		amqp.ErrCredentials: "refused:403",
		&amqp.Error{Code: 530, Reason: "NOT_ALLOWED - vhost x not found", Server: true}: "refused:530",
		&amqp.Error{Code: 406, Reason: "PRECONDITION_FAILED - x", Server: true}:         "precondition:406",
		&amqp.Error{Code: 501, Reason: "EOF"}:                                           "connection:",
		&amqp.Error{Code: 541, Reason: "INTERNAL_ERROR", Server: true}:                  "connection:541",
	} {
		e := unconnected("host:5672", err)
		got := string(e.Kind) + ":"
		if e.Code != 0 {
			got += fmt.Sprint(e.Code)
		}
		if got != want || !strings.Contains(e.Text, "host:5672") {
			t.Errorf("%v: %s %s", err, got, e.Text)
		}
	}
}
