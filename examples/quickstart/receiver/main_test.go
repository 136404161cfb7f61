package main

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// signed is a request as a sender with the secret makes it at that moment.
func signed(t *testing.T, secret, id, body string, at time.Time) *http.Request {
	t.Helper()
	official, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := official.Sign(id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	q := httptest.NewRequest(http.MethodPost, "/commands", strings.NewReader(body))
	q.Header.Set("webhook-id", id)
	q.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	q.Header.Set("webhook-signature", signature)
	q.Header.Set("Connectd-Key", "ada")
	q.Header.Set("Connectd-Type", "order.placed")
	return q
}

func TestReceiver(t *testing.T) {
	var out strings.Builder
	r, err := newReceiver(secret, &out)
	if err != nil {
		t.Fatal(err)
	}
	const body, other = `{"order":1}`, "whsec_Y29ubmVjdGQtdGVzdC1zZWNyZXQtMzItYnl0ZXMhIQ=="
	now := time.Now()
	good := func() *http.Request { return signed(t, secret, "order-1", body, now) }
	changed := func(name, value string) *http.Request {
		q := good()
		q.Header.Set(name, value)
		return q
	}
	rotating := signed(t, other, "order-1", body, now)
	rotating.Header.Set("webhook-signature", "v2,AAAA "+rotating.Header.Get("webhook-signature")+" "+good().Header.Get("webhook-signature"))
	anotherBody := signed(t, secret, "order-1", body, now)
	anotherBody.Body = http.NoBody
	for _, c := range []struct {
		what    string
		request *http.Request
		status  int
		printed string
	}{
		{"first", good(), 204, `order-1 for ada: order.placed {"order":1}` + "\n"},
		{"again", good(), 204, "order-1 again: done already\n"},
		{"two secrets", rotating, 204, "order-1 again: done already\n"},
		{"no body", signed(t, secret, "order-2", "", now), 204, "order-2 for ada: order.placed \n"},
		{"a bit early", signed(t, secret, "order-2", "", now.Add(4*time.Minute)), 204, "order-2 again: done already\n"},
		{"another secret", signed(t, other, "order-3", body, now), 401, ""},
		{"another body", anotherBody, 401, ""},
		{"another id", changed("webhook-id", "order-3"), 401, ""},
		{"another time", changed("webhook-timestamp", strconv.FormatInt(now.Unix()+1, 10)), 401, ""},
		{"no id", changed("webhook-id", ""), 401, ""},
		{"no time", changed("webhook-timestamp", ""), 401, ""},
		{"no signature", changed("webhook-signature", ""), 401, ""},
		{"old", signed(t, secret, "order-3", body, now.Add(-tolerance-time.Minute)), 401, ""},
		{"early", signed(t, secret, "order-3", body, now.Add(tolerance+time.Minute)), 401, ""},
		{"the end of time", signed(t, secret, "order-3", body, time.Unix(math.MaxInt64, 0)), 401, ""},
		{"too large", signed(t, secret, "order-3", strings.Repeat(" ", maxBody+1), now), 400, ""},
	} {
		out.Reset()
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, c.request)
		if answer.Code != c.status || out.String() != c.printed {
			t.Errorf("%s: %d %q, want %d %q", c.what, answer.Code, out.String(), c.status, c.printed)
		}
	}
}

// TestWhatFailedIsNotDone: the receiver asks for the command again, and does it then.
func TestWhatFailedIsNotDone(t *testing.T) {
	out := &broken{}
	r, err := newReceiver(secret, out)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []int{500, 204} {
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, signed(t, secret, "order-1", "{}", time.Now()))
		if answer.Code != want {
			t.Errorf("try %d: %d, want %d", n, answer.Code, want)
		}
	}
	if !strings.HasPrefix(out.String(), "order-1 for ada") {
		t.Errorf("printed %q", out.String())
	}
}

// broken fails once.
type broken struct {
	strings.Builder
	failed bool
}

func (b *broken) Write(p []byte) (int, error) {
	if !b.failed {
		b.failed = true
		return 0, errors.New("broken")
	}
	return b.Builder.Write(p)
}

func TestBadSecretsAreRefused(t *testing.T) {
	for _, text := range []string{"", "whsec_", "whsec_c2hvcnQ=", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", secret[:30]} {
		if _, err := newReceiver(text, nil); err == nil || strings.Contains(err.Error(), "c2hvcnQ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
