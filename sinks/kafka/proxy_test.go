package kafka

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// proxy stands between a sink and a cluster of one broker, and can take the broker away, keep its answers, or stop all that
// is on its way, as a network that is cut. Brokers tell clients their addresses, so it puts its own in the place of the
// broker's.
type proxy struct {
	t    testing.TB
	to   string
	addr string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	kept     chan struct{} // closed when answers go through; nil: they do
	frozen   chan struct{} // closed when anything does; nil: it does
	wg       sync.WaitGroup
}

// behindProxy is a proxy of the broker.
func behindProxy(t testing.TB, to string) *proxy {
	t.Helper()
	p := &proxy{t: t, to: to, addr: "127.0.0.1:0", conns: map[net.Conn]bool{}}
	p.back()
	t.Cleanup(func() {
		p.away()
		p.answer()
		p.thaw()
		p.wg.Wait()
	})
	return p
}

// back lets connections come through, at the address of before.
func (p *proxy) back() {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.listener, p.addr = l, l.Addr().String()
	p.mu.Unlock()
	p.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				in.Close()
				continue
			}
			p.mu.Lock()
			p.conns[in], p.conns[out] = true, true
			p.mu.Unlock()
			c := &proxied{p: p, asked: make(chan request, 1000)}
			p.wg.Go(func() { c.requests(in, out) })
			p.wg.Go(func() { c.responses(in, out) })
		}
	})
}

// away ends all connections and refuses others.
func (p *proxy) away() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listener.Close()
	for c := range p.conns {
		c.Close()
	}
	clear(p.conns)
}

// keep lets requests through and keeps the answers until answer is called.
func (p *proxy) keep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept == nil {
		p.kept = make(chan struct{})
	}
}

func (p *proxy) answer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept != nil {
		close(p.kept)
		p.kept = nil
	}
}

// freeze stops everything that is on its way, in both directions, and new connections. Nobody is told.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
}

// thaw lets it go on, as TCP sends again what was lost.
func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// wait returns when something may go through: an answer or a request.
func (p *proxy) wait(answer bool) {
	p.mu.Lock()
	kept, frozen := p.kept, p.frozen
	p.mu.Unlock()
	if answer && kept != nil {
		<-kept
	}
	if frozen != nil {
		<-frozen
	}
}

// proxied is one connection.
type proxied struct {
	p     *proxy
	asked chan request // in order, as their answers come
}

type request struct{ key, version int16 }

func (c *proxied) requests(in, out net.Conn) {
	defer out.Close()
	for {
		frame, err := readFrame(in)
		if err != nil {
			return
		}
		be := binary.BigEndian
		c.asked <- request{int16(be.Uint16(frame[4:])), int16(be.Uint16(frame[6:]))}
		c.p.wait(false)
		if _, err := out.Write(frame); err != nil {
			return
		}
	}
}

func (c *proxied) responses(in, out net.Conn) {
	defer in.Close()
	for {
		frame, err := readFrame(out)
		if err != nil {
			return
		}
		if r := <-c.asked; r.key == int16(kmsg.Metadata) {
			frame = c.p.readdressed(frame, r.version)
		}
		c.p.wait(true)
		if _, err := in.Write(frame); err != nil {
			return
		}
	}
}

// readdressed is an answer that names this proxy where it named the broker.
func (p *proxy) readdressed(frame []byte, version int16) []byte {
	response := kmsg.NewPtrMetadataResponse()
	response.Version = version
	header := 8 // length and number; and tags, none
	if response.IsFlexible() {
		header++
	}
	if err := response.ReadFrom(frame[header:]); err != nil {
		p.t.Errorf("read a broker's answer: %v", err)
		return frame
	}
	host, port, _ := net.SplitHostPort(p.addr)
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
