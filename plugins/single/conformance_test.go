package single_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/sinktest"
)

const serveArg = "serve-the-example"

// TestMain is also the program of the example's sink.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveArg {
		ExampleNew()
		return
	}
	goleak.VerifyTestMain(m)
}

// The example, a sink over HTTP, behaves; so the helper does what it says for a client that has connections of its own.
func TestExample(t *testing.T) { sinktest.Run(t, harness) }

func TestExampleAsAProgram(t *testing.T) {
	sinktest.Binary(t, sinktest.Program{
		Path: os.Args[0], Args: []string{serveArg}, Env: []string{"GORACE=atexit_sleep_ms=0 halt_on_error=1"},
	}, harness)
}

const apiKey = "k3y-0f-the-4pi"

// destination is an HTTP server that can go away and hang.
type destination struct {
	address string

	mu       sync.Mutex
	server   *httptest.Server
	hang     chan struct{} // not nil: requests wait until it is closed
	received []core.Record
}

func harness(t testing.TB) sinktest.Harness {
	d := &destination{address: "127.0.0.1:0"}
	d.start(t)
	t.Cleanup(func() { d.server.Close() })
	return sinktest.Harness{
		Sink:     newSink(),
		Settings: []byte(`{"url":"http://` + d.address + `/","api_key":"` + apiKey + `"}`),
		Secrets:  []string{apiKey},
		BadSettings: []sinktest.BadSettings{
			{Settings: `{"api_key":"hunter2"}`, Pointer: "/url", Secret: "hunter2"},
			{Settings: `{"url":"http://x/","api_key":7}`, Pointer: "/api_key"},
		},
		Received: func(testing.TB) []core.Record {
			d.mu.Lock()
			defer d.mu.Unlock()
			return slices.Clone(d.received)
		},
		Refuse: func(r core.Record) core.Record { r.Type = "refuse"; return r },
		Outage: func(t testing.TB) func() {
			d.server.CloseClientConnections()
			d.server.Close()
			return func() { d.start(t) }
		},
		Hang: func(testing.TB) func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			hang := make(chan struct{})
			d.hang = hang
			return func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.hang = nil
				close(hang)
			}
		},
	}
}

// start listens, after an outage on the address as before, which another process may have taken for a moment.
func (d *destination) start(t testing.TB) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		listener, err := net.Listen("tcp", d.address)
		if err == nil {
			d.address = listener.Addr().String()
			d.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: d}}
			d.server.Start()
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func (d *destination) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	d.mu.Lock()
	hang := d.hang
	d.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-time.After(10 * time.Second):
		}
	}
	err := d.take(req)
	switch {
	case errors.Is(err, errRefused):
		http.Error(w, "no, said the server to "+req.Header.Get("Authorization"), http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

var errRefused = errors.New("refused")

func (d *destination) take(req *http.Request) error {
	if req.Method == http.MethodGet {
		return nil
	}
	var r core.Record
	if err := json.NewDecoder(req.Body).Decode(&r); err != nil {
		return err
	}
	if r.Type == "refuse" {
		return errRefused
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.received = append(d.received, r)
	return nil
}
