package proxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Broker is one connection between a Kafka client and the only broker of a cluster. Brokers tell clients their addresses;
// it puts another one, a proxy's, in the place of the broker's own. Its two methods are for one goroutine each.
type Broker struct {
	host string
	port int32
	// asked are the requests that have no answer yet: answers come in their order.
	asked chan request
}

type request struct{ key, version int16 }

// mostAsked is how many requests a client may send before it has read an answer.
const mostAsked = 1000

// NewBroker is for a connection to the proxy at this address.
func NewBroker(address string) (*Broker, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port of %s: %w", address, err)
	}
	return &Broker{host: host, port: int32(port), asked: make(chan request, mostAsked)}, nil
}

// Request reads what the client says next, as it goes on to the broker.
func (b *Broker) Request(from io.Reader) ([]byte, error) {
	frame, err := readFrame(from)
	if err != nil {
		return nil, err
	}
	select {
	case b.asked <- request{int16(binary.BigEndian.Uint16(frame[4:])), int16(binary.BigEndian.Uint16(frame[6:]))}:
		return frame, nil
	default:
		return nil, fmt.Errorf("a client waits for %d answers", mostAsked)
	}
}

// Answer reads what the broker says next, as it goes on to the client.
func (b *Broker) Answer(from io.Reader) ([]byte, error) {
	frame, err := readFrame(from)
	if err != nil {
		return nil, err
	}
	select {
	case r := <-b.asked:
		if r.key == int16(kmsg.Metadata) {
			return b.readdressed(frame, r.version)
		}
		return frame, nil
	default:
		return nil, fmt.Errorf("an answer to no request")
	}
}

// readdressed is an answer that names the proxy where it named the broker.
func (b *Broker) readdressed(frame []byte, version int16) ([]byte, error) {
	response := kmsg.NewPtrMetadataResponse()
	response.Version = version
	header := 8 // length and number; and tags, none
	if response.IsFlexible() {
		header++
	}
	if err := response.ReadFrom(frame[min(header, len(frame)):]); err != nil {
		return nil, fmt.Errorf("read a broker's answer: %w", err)
	}
	for i := range response.Brokers {
		response.Brokers[i].Host, response.Brokers[i].Port = b.host, b.port
	}
	frame = response.AppendTo(frame[:header:header])
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame, nil
}

// readFrame reads a request or a response with its length before it. Either has at least eight bytes.
func readFrame(r io.Reader) ([]byte, error) {
	frame := make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	const most = 100 << 20 // as brokers have it: socket.request.max.bytes
	size := binary.BigEndian.Uint32(frame)
	if size < 4 || size > most {
		return nil, fmt.Errorf("a frame of %d bytes", size)
	}
	frame = append(frame, make([]byte, size)...)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// Kafka passes on what is said with a broker, which has the proxy's address for the client.
func Kafka(p *Proxy, client, server net.Conn) (requests, answers func(pass func())) {
	b, err := NewBroker(p.Addr)
	if err != nil {
		p.t.Errorf("the proxy's own address: %v", err)
	}
	relay := func(read func(io.Reader) ([]byte, error), from, to net.Conn) func(pass func()) {
		return func(pass func()) {
			for err == nil {
				frame, err := read(from)
				if err != nil {
					return
				}
				pass()
				if _, err := to.Write(frame); err != nil {
					return
				}
			}
		}
	}
	return relay(b.Request, client, server), relay(b.Answer, server, client)
}
