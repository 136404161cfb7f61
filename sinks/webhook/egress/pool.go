package egress

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// lookEvery is how often the files of TLS are looked at.
const lookEvery = time.Second

// pool keeps the connections. They are of one generation, until that is maxAge old or its certificates have changed: then
// a fresh one takes over, and the connections of the old one are closed, those in use when they come back. So a connection
// lives a little longer than maxAge at most, and changes of names and load balancers take effect. It may be used
// concurrently.
type pool struct {
	tls    func() (*tls.Config, error)
	make   func(*tls.Config, *connections) *http.Transport
	maxAge time.Duration

	mu      sync.Mutex
	current *generation // nil until the first use and after close
	looked  time.Time   // at the files
	closed  bool
}

type generation struct {
	*http.Transport
	connections connections
	tls         *tls.Config
	born        time.Time
	users       int
	retired     bool
}

// acquire returns the generation of now, to be given back with release. It fails when TLS's files cannot be used and there
// is no generation: one that there is goes on, as files may be half renewed.
func (p *pool) acquire() (*generation, *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &Error{Phase: PhaseWait, Err: net.ErrClosed}
	}
	now := time.Now()
	if p.current != nil && now.Sub(p.current.born) >= p.maxAge {
		p.retire()
	}
	if p.current == nil || now.Sub(p.looked) >= lookEvery {
		p.looked = now
		config, err := p.tls()
		switch {
		case err == nil && (p.current == nil || p.current.tls != config):
			p.replace(config, now)
		case p.current == nil:
			return nil, &Error{Phase: PhaseTLS, Err: err}
		}
	}
	p.current.users++
	return p.current, nil
}

// replace begins a generation; the caller holds the lock.
func (p *pool) replace(config *tls.Config, now time.Time) {
	if p.current != nil {
		p.retire()
	}
	p.current = &generation{tls: config, born: now}
	p.current.Transport = p.make(config, &p.current.connections)
}

func (p *pool) release(g *generation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.users--
	if g.retired && g.users == 0 {
		g.end()
	}
}

// retire ends the current generation as far as it is not in use; the caller holds the lock.
func (p *pool) retire() {
	g := p.current
	p.current = nil
	g.retired = true
	if g.users == 0 {
		g.end()
	} else {
		g.CloseIdleConnections()
	}
}

// end closes all connections, of which nobody uses any. HTTP/2 forgets its streams some time after they have ended, and
// would keep the connection until then.
func (g *generation) end() {
	g.CloseIdleConnections()
	g.connections.closeAll()
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.current != nil {
		p.retire()
	}
}
