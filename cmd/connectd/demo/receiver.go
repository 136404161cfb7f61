package demo

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/connectd/connectd/sinks/webhook/signature"
)

const (
	tolerance = 5 * time.Minute
	maxBody   = 1 << 20
	// workLimit bounds the work on a command that is held up.
	workLimit = 2 * time.Second
)

// arrival is a request whose signature was right.
type arrival struct {
	ID, Key, Type     string
	Payload           string
	Deliveries        int
	PossibleDuplicate bool
	// Again says that the receiver had done this command already and did not do it again.
	Again bool
}

// receiver is the consumer: an HTTP server that shares nothing with connectd but a secret.
type receiver struct {
	url    string
	key    signature.Key
	server *http.Server
	served chan struct{}
	// begun takes the work that the receiver begins, if somebody waits for it: to hold it up until the channel in it is
	// closed.
	begun chan chan struct{}

	mu       sync.Mutex
	done     map[string]bool // by webhook-id. The shop is open for minutes; who runs for years asks a database
	arrivals []arrival       // in the order of their coming, copies included
	refused  int
}

// newSecret makes a secret as `whsec_` and base64.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(b[:])
}

// startReceiver listens on a free port of this machine.
func startReceiver(ctx context.Context, secret string) (*receiver, error) {
	key, err := signature.ParseVerifyKey(secret)
	if err != nil {
		return nil, fmt.Errorf("the receiver's secret %w", err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the receiver: %w", err)
	}
	r := &receiver{
		url: "http://" + listener.Addr().String() + "/commands", key: key, served: make(chan struct{}), begun: make(chan chan struct{}),
		done: map[string]bool{},
	}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		defer close(r.served)
		_ = r.server.Serve(listener) // ends when the server is closed
	}()
	return r, nil
}

func (r *receiver) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = r.server.Shutdown(ctx)
	_ = r.server.Close()
	<-r.served
}

// ServeHTTP verifies, works, and answers 204 when the command is done, now or before.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	id, err := signature.Verify(q.Header, body, []signature.Key{r.key}, time.Now(), tolerance)
	if err != nil {
		r.mu.Lock()
		r.refused++
		r.mu.Unlock()
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	key, err := signature.PercentDecode(q.Header.Get("Connectd-Key"))
	if err != nil {
		http.Error(w, "Connectd-Key: "+err.Error(), http.StatusBadRequest)
		return
	}
	deliveries, _ := strconv.Atoi(q.Header.Get("Connectd-Delivery"))
	work := make(chan struct{})
	select {
	case r.begun <- work:
		select {
		case <-work:
		case <-time.After(workLimit):
		}
	default:
	}
	// What has begun is done, whether or not the sender is still there.
	r.take(arrival{
		ID: id, Key: key, Type: q.Header.Get("Connectd-Type"), Payload: string(body), Deliveries: deliveries,
		PossibleDuplicate: q.Header.Get("Connectd-Possible-Duplicate") == "true",
	})
	w.WriteHeader(http.StatusNoContent)
}

// take does a command, unless it was done already.
func (r *receiver) take(a arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.Again = r.done[a.ID]
	r.done[a.ID] = true
	r.arrivals = append(r.arrivals, a)
}

// since returns what arrived after the first n.
func (r *receiver) since(n int) []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.arrivals[n:len(r.arrivals):len(r.arrivals)]
}

// refusals counts the requests whose signature was wrong.
func (r *receiver) refusals() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// hold waits until the receiver begins to work on a command, for at most limit, and holds that work up until release is
// called. A sender that is killed in between leaves in doubt whether the command was done.
func (r *receiver) hold(ctx context.Context, limit time.Duration) (release func()) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case work := <-r.begun:
		return func() { close(work) }
	case <-ctx.Done():
		return func() {}
	}
}
