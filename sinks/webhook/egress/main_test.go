package egress

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns a Client that is closed when the test ends.
func client(t testing.TB, c Config) *Client {
	t.Helper()
	client := New(c)
	t.Cleanup(client.Close)
	return client
}

// server starts a server that is closed when the test ends, and gives its URL.
func server(t testing.TB, h http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return parse(t, s.URL)
}

func parse(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// post sends a POST request, for half a minute at most.
func post(t testing.TB, c *Client, u *url.URL, body string) (*Answer, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return c.Do(ctx, Request{Method: "POST", URL: u, Body: []byte(body)})
}

// wantStatus fails the test unless there is an answer with that status.
func wantStatus(t testing.TB, status int, a *Answer, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if a.Status != status {
		t.Fatalf("status %d, want %d", a.Status, status)
	}
}

// wantError fails the test unless the exchange ended in the phase, and the request was sent or not.
func wantError(t testing.TB, phase Phase, sent bool, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("no *Error: %v", err)
	}
	if e.Phase != phase || e.Sent != sent {
		t.Fatalf("phase %s, sent %v; want %s, %v: %v", e.Phase, e.Sent, phase, sent, e.Err)
	}
	return e
}
