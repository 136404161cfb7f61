// Command receiver is the consumer of a webhook, made with the standard library only; a receiver in another language
// does the same. It makes sure that a request comes from who has the secret, does each command once, and prints it.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// tolerance is how far a request's timestamp may be from now: nobody can send an old one again.
	tolerance = 5 * time.Minute
	maxBody   = 1 << 20
)

func main() {
	if err := run(context.Background(), os.Getenv("WEBHOOK_SECRET"), os.Getenv("RECEIVER_ADDRESS")); err != nil {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, secret, address string) error {
	r, err := newReceiver(secret, os.Stdout)
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s/commands\n", listener.Addr())
	server := &http.Server{Handler: r, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second}
	return server.Serve(listener)
}

type receiver struct {
	key []byte
	out io.Writer

	mu sync.Mutex
	// done has the ids of the commands that were done. In memory it is forgotten when the receiver ends, and it only
	// grows. A real consumer writes the id into a table with a primary key, in the same transaction as what the command
	// does:
	//
	//	INSERT INTO done (id) VALUES (?) ON CONFLICT DO NOTHING   -- no row changed: it was done before
	done map[string]bool
}

// newReceiver reads a secret as Standard Webhooks writes it: "whsec_" and base64.
func newReceiver(secret string, out io.Writer) (*receiver, error) {
	encoded, found := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !found || err != nil || len(key) < 24 {
		return nil, errors.New(`WEBHOOK_SECRET must be "whsec_" and the base64 of at least 24 bytes`)
	}
	return &receiver{key: key, out: out, done: map[string]bool{}}, nil
}

// ServeHTTP answers 204 only when the command is done: after any other answer, or none, connectd sends it again.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	// The body as it came, byte for byte. Who parses it first and writes it again has other bytes.
	if err := r.verify(q.Header, body, time.Now()); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	if err := r.do(q.Header, body); err != nil {
		http.Error(w, "try again", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// verify checks the signature of https://www.standardwebhooks.com: HMAC-SHA256 over id, timestamp and body.
func (r *receiver) verify(h http.Header, body []byte, now time.Time) error {
	id, timestamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" {
		return errors.New("webhook-id or webhook-timestamp is missing")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return errors.New("webhook-timestamp is too far from now")
	}
	mac := hmac.New(sha256.New, r.key)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	// There are several while one secret replaces another.
	for signature := range strings.FieldsSeq(h.Get("webhook-signature")) {
		if hmac.Equal([]byte(signature), []byte(want)) { // in constant time
			return nil
		}
	}
	return errors.New("no webhook-signature is right")
}

// do does a command, unless it was done before: the id is the same each time it is sent. The signature covers the id
// and the body; key and type are in headers that it does not cover, so nothing depends on them here.
func (r *receiver) do(h http.Header, body []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := h.Get("webhook-id")
	if r.done[id] {
		_, err := fmt.Fprintf(r.out, "%s again: done already\n", id)
		return err
	}
	_, err := fmt.Fprintf(r.out, "%s for %s: %s %s\n", id, h.Get("Connectd-Key"), h.Get("Connectd-Type"), body)
	r.done[id] = err == nil
	return err
}
