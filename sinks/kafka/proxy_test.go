package kafka

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/connectd/connectd/scripts/services/proxy"
)

// behindProxy is a proxy of a cluster of one broker. Brokers tell clients their addresses, so it puts its own in the place of
// the broker's.
func behindProxy(t testing.TB, to string) *proxy.Proxy {
	t.Helper()
	return proxy.New(t, to, func(p *proxy.Proxy, client, broker net.Conn) (requests, answers func(pass func())) {
		c := &proxied{t: t, addr: p.Addr, asked: make(chan request, 1000)}
		return func(pass func()) { c.requests(client, broker, pass) }, func(pass func()) { c.answers(client, broker, pass) }
	})
}

// proxied is one connection.
type proxied struct {
	t     testing.TB
	addr  string       // the proxy's
	asked chan request // in order, as their answers come
}

type request struct{ key, version int16 }

func (c *proxied) requests(in, out net.Conn, pass func()) {
	for {
		frame, err := readFrame(in)
		if err != nil {
			return
		}
		be := binary.BigEndian
		c.asked <- request{int16(be.Uint16(frame[4:])), int16(be.Uint16(frame[6:]))}
		pass()
		if _, err := out.Write(frame); err != nil {
			return
		}
	}
}

func (c *proxied) answers(in, out net.Conn, pass func()) {
	for {
		frame, err := readFrame(out)
		if err != nil {
			return
		}
		if r := <-c.asked; r.key == int16(kmsg.Metadata) {
			frame = c.readdressed(frame, r.version)
		}
		pass()
		if _, err := in.Write(frame); err != nil {
			return
		}
	}
}

// readdressed is an answer that names the proxy where it named the broker.
func (c *proxied) readdressed(frame []byte, version int16) []byte {
	response := kmsg.NewPtrMetadataResponse()
	response.Version = version
	header := 8 // length and number; and tags, none
	if response.IsFlexible() {
		header++
	}
	if err := response.ReadFrom(frame[header:]); err != nil {
		c.t.Errorf("read a broker's answer: %v", err)
		return frame
	}
	host, port, _ := net.SplitHostPort(c.addr)
	number, _ := strconv.Atoi(port)
	for i := range response.Brokers {
		response.Brokers[i].Host, response.Brokers[i].Port = host, int32(number)
	}
	frame = response.AppendTo(frame[:header:header])
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// readFrame reads a request or a response with its length before it.
func readFrame(r io.Reader) ([]byte, error) {
	frame := make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
