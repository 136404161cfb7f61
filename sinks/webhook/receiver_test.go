package webhook

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// receiver is a real HTTP server whose answers a test scripts. It notes every request that it has read to its end, before
// it answers.
type receiver struct {
	address  string // host:port, the same after an outage
	tls      *tls.Config
	protocol *http.Protocols

	mu       sync.Mutex
	server   *http.Server
	conns    map[net.Conn]bool
	opened   int // connections so far
	requests int // that began, whether or not they were read
	arrived  []*arrival
	script   []answer
	usual    answer        // when the script is at its end
	hanging  chan struct{} // closed when answers may go out again; nil when they may
}

// arrival is a request that was read.
type arrival struct {
	at     time.Time
	method string
	uri    string
	proto  string
	header http.Header
	body   []byte

	parse  sync.Once
	parsed []core.Record
}

// arrivalKey is where a request's context has what was noted of it.
type arrivalKey struct{}

func arrivalOf(r *http.Request) *arrival { return r.Context().Value(arrivalKey{}).(*arrival) }

// answer is what the receiver does with a request. The body is read already, unless early is set.
type answer struct {
	early bool
	do    func(w http.ResponseWriter, r *http.Request)
}

// receive starts a receiver that answers 200.
func receive(t testing.TB) *receiver { return startReceiver(t, "127.0.0.1:0", nil, false) }

// receiveTLS starts a receiver of https, with HTTP/2 if it is wanted, and returns it with a file of the certificate that is
// to be trusted. Its names are 127.0.0.1 and example.com.
func receiveTLS(t testing.TB, http2 bool) (r *receiver, caFile string) {
	t.Helper()
	source := httptest.NewTLSServer(nil) // has a certificate
	certificates := source.TLS.Certificates
	source.Close()
	r = startReceiver(t, "127.0.0.1:0", &tls.Config{Certificates: certificates}, http2)
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificates[0].Certificate[0]})
	if err := os.WriteFile(caFile, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return r, caFile
}

func startReceiver(t testing.TB, address string, config *tls.Config, http2 bool) *receiver {
	t.Helper()
	r := &receiver{tls: config, protocol: new(http.Protocols), conns: map[net.Conn]bool{}, usual: status(200)}
	r.protocol.SetHTTP1(true)
	r.protocol.SetHTTP2(http2)
	r.listen(t, address)
	t.Cleanup(r.stop)
	return r
}

func (r *receiver) url() string {
	if r.tls != nil {
		return "https://" + r.address
	}
	return "http://" + r.address
}

// listen begins to take connections. The address may be in use for a moment after an outage.
func (r *receiver) listen(t testing.TB, address string) {
	t.Helper()
	var listener net.Listener
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if listener, err = net.Listen("tcp", address); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	server := &http.Server{
		Handler: r, Protocols: r.protocol, TLSConfig: r.tls.Clone(), ConnState: r.connState,
		ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
	}
	r.mu.Lock()
	r.address, r.server = listener.Addr().String(), server
	r.mu.Unlock()
	go func() { // until stop
		if r.tls != nil {
			_ = server.ServeTLS(listener, "", "")
		} else {
			_ = server.Serve(listener)
		}
	}()
}

func (r *receiver) connState(c net.Conn, state http.ConnState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch state {
	case http.StateNew:
		r.opened++
		r.conns[c] = true
	case http.StateClosed:
		delete(r.conns, c)
	}
}

// stop closes the listener and all connections, those that were taken over by an answer too.
func (r *receiver) stop() {
	r.mu.Lock()
	server, conns := r.server, r.conns
	r.conns = map[net.Conn]bool{}
	r.mu.Unlock()
	_ = server.Close()
	for c := range conns {
		_ = c.Close()
	}
}

// outage closes the listener and all connections; restore brings them back at the same address.
func (r *receiver) outage(t testing.TB) (restore func()) {
	r.stop()
	return func() { r.listen(t, r.address) }
}

// hang makes the receiver read requests and not answer them, until restore is called.
func (r *receiver) hang(testing.TB) (restore func()) {
	hanging := make(chan struct{})
	r.mu.Lock()
	r.hanging = hanging
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		r.hanging = nil
		r.mu.Unlock()
		close(hanging)
	}
}

// then sets the answers to the next requests, in the order in which these begin.
func (r *receiver) then(script ...answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = script
}

// always sets the answer to all requests that are not in the script.
func (r *receiver) always(a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usual = a
}

// ServeHTTP reads a request, notes it and gives the answer that is its turn.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	r.requests++
	a := r.usual
	if len(r.script) > 0 {
		a, r.script = r.script[0], r.script[1:]
	}
	r.mu.Unlock()
	if a.early {
		a.do(w, request)
		return
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the client left
	}
	noted := &arrival{
		at: time.Now(), method: request.Method, uri: request.RequestURI, proto: request.Proto, header: request.Header, body: body,
	}
	r.mu.Lock()
	r.arrived = append(r.arrived, noted)
	hanging := r.hanging
	r.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-request.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	a.do(w, request.WithContext(context.WithValue(request.Context(), arrivalKey{}, noted)))
}

// got returns the requests that were read so far.
func (r *receiver) got() []*arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrived)
}

// counts returns how many requests began and how many connections there were.
func (r *receiver) counts() (requests, connections int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, r.opened
}

// status answers with a code and headers, given as name and value in turn.
func status(code int, headers ...string) answer {
	return answer{do: func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Add(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		if code >= 300 && code != http.StatusNotModified {
			_, _ = fmt.Fprintf(w, "answered %d\x00", code)
		}
	}}
}

// says answers with a code and a body.
func says(code int, body string) answer {
	return answer{do: func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}}
}

// after waits before it answers, unless the client leaves.
func after(d time.Duration, a answer) answer {
	return answer{early: a.early, do: func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(d):
			a.do(w, r)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}}
}

// reset ends the connection with a TCP reset, after the request was read, or with early before more than its header was.
func reset(early bool) answer {
	return answer{early: early, do: func(w http.ResponseWriter, _ *http.Request) {
		c := hijack(w)
		if c, ok := c.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}}
}

// raw writes bytes of its own making and closes the connection: answers that break off, closed kept-alive connections,
// answers before the request was read.
func raw(early bool, text string) answer {
	return answer{early: early, do: func(w http.ResponseWriter, _ *http.Request) {
		c := hijack(w)
		defer c.Close()
		_, _ = io.WriteString(c, text)
		if c, ok := c.(*net.TCPConn); ok && early { // what was not read would make the close a reset, which could overtake the answer
			_ = c.CloseWrite()
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			_, _ = io.Copy(io.Discard, c)
		}
	}}
}

func hijack(w http.ResponseWriter) net.Conn {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	return c
}

// endless answers with a code and a body that never ends, as fast as the client reads, or with a pause between bytes.
func endless(code int, pause time.Duration) answer {
	return answer{do: func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		chunk := bytes.Repeat([]byte("x"), 1024)
		if pause > 0 {
			chunk = chunk[:1]
		}
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			if pause > 0 {
				select {
				case <-time.After(pause):
				case <-r.Context().Done():
				}
			}
		}
	}}
}

// informs sends answers of the 1xx kind before the real one.
func informs(a answer, codes ...int) answer {
	return answer{early: a.early, do: func(w http.ResponseWriter, r *http.Request) {
		for _, code := range codes {
			w.WriteHeader(code)
		}
		a.do(w, r)
	}}
}

// The receiver itself: its faults are faults.
func TestReceiverFaults(t *testing.T) {
	r := receive(t)
	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	post := func(body string) (int, error) {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, r.url(), bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		request.GetBody = nil
		response, err := client.Do(request)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		return response.StatusCode, nil
	}
	r.then(status(503), reset(false), reset(true), raw(false, "HTTP/1.1 2"))
	if code, err := post("a"); code != 503 || err != nil {
		t.Errorf("scripted 503: %d, %v", code, err)
	}
	for _, what := range []string{"reset after the request", "reset before the request", "broken off answer"} {
		if code, err := post("a"); err == nil {
			t.Errorf("%s: answered %d", what, code)
		}
	}
	if code, err := post("a"); code != 200 || err != nil {
		t.Errorf("after the script: %d, %v", code, err)
	}
	restore := r.outage(t)
	if _, err := post("a"); err == nil {
		t.Error("an outage is answered")
	}
	restore()
	if _, err := post("a"); err != nil {
		t.Errorf("after an outage: %v", err)
	}
	if n := len(r.got()); n != 5 {
		t.Errorf("%d requests were read, want 5", n)
	}
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	restore = r.hang(t)
	defer restore()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na")
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := bufio.NewReader(c).ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a receiver that hangs says something: %v", err)
	}
}
