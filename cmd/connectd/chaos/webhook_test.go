//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// webhookReceiver takes requests. A request counts when all of it has come and before it is answered: the answer may
// get lost.
type webhookReceiver struct {
	settings string
	listener net.Listener

	mu      sync.Mutex
	wait    time.Duration
	refuses bool
	list    []reception
	err     error
}

func startWebhook(t *testing.T, settings string) *webhookReceiver {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &webhookReceiver{settings: settings, listener: l}
	server := &http.Server{Handler: w, ReadTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return w
}

func (w *webhookReceiver) yaml() string                 { return w.settings }
func (w *webhookReceiver) address() string              { return w.listener.Addr().String() }
func (w *webhookReceiver) target(address string) string { return "http://" + address + "/hooks" }
func (w *webhookReceiver) name() string                 { return "an HTTP server of the harness" }

func (w *webhookReceiver) hinder(how what) (mend func() error, err error) {
	set := func(wait time.Duration, refuses bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wait, w.refuses = wait, refuses
	}
	if how == targetSlow {
		set(300*time.Millisecond, false)
	} else {
		set(0, true)
	}
	return func() error { set(0, false); return nil }, nil
}

func (w *webhookReceiver) received() ([]reception, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.list, w.err
}

// ServeHTTP takes its time before and after it takes the record, so that there is mostly something on its way. One whose
// client is gone by then it does not take: a program that looks would not either.
func (w *webhookReceiver) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // half a request
	}
	select {
	case <-time.After(rand.N(15 * time.Millisecond)):
	case <-r.Context().Done():
		return
	}
	status, wait := w.take(r.Header, body)
	select {
	case <-time.After(wait + rand.N(25*time.Millisecond)):
	case <-r.Context().Done():
	}
	answer.WriteHeader(status)
}

// take decides on a request and notes it when it is taken.
func (w *webhookReceiver) take(h http.Header, body []byte) (status int, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.refuses:
		return http.StatusServiceUnavailable, 0
	case h.Get("Connectd-Type") == refused:
		return http.StatusUnprocessableEntity, 0
	}
	r := reception{ID: h.Get("Webhook-Id"), Marked: h.Get("Connectd-Possible-Duplicate") == "true", At: time.Now()}
	var payload struct {
		Key string
		N   int
	}
	err := json.Unmarshal(body, &payload)
	r.Key, r.N = payload.Key, payload.N
	var numbers [2]int
	for i, name := range []string{"Connectd-Delivery", "Connectd-Epoch"} {
		if n, bad := strconv.Atoi(h.Get(name)); err == nil {
			numbers[i], err = n, bad
		}
	}
	r.Delivery, r.Epoch = numbers[0], int64(numbers[1])
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("request %v %q: %w", h, body, err)
	}
	w.list = append(w.list, r)
	return http.StatusNoContent, w.wait
}
