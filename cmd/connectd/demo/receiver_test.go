package demo

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/sinks/webhook/signature"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post sends a command as the sink does, and changed by edit.
func post(t *testing.T, r *receiver, secret, id, body string, edit func(http.Header)) int {
	t.Helper()
	key, err := signature.ParseKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for name, value := range map[string]string{
		signature.HeaderID: id, signature.HeaderTimestamp: strconv.FormatInt(now.Unix(), 10),
		signature.HeaderSignature: signature.Standard([]signature.Key{key}, id, now, []byte(body)),
		"Connectd-Key":            "customer%2001", "Connectd-Type": "order.placed", "Connectd-Delivery": "1",
	} {
		q.Header.Set(name, value)
	}
	edit(q.Header)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// TestReceiverDoesACommandOnce, however often it comes, and nothing that is not signed.
func TestReceiverDoesACommandOnce(t *testing.T) {
	secret := newSecret()
	r, err := startReceiver(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	same := func(http.Header) {}
	second := func(h http.Header) {
		h.Set("Connectd-Delivery", "2")
		h.Set("Connectd-Possible-Duplicate", "true")
	}
	for n, c := range []struct {
		secret, id, body string
		edit             func(http.Header)
		want             int
	}{
		{secret, "order-1", `{"order":1}`, same, http.StatusNoContent},
		{secret, "order-1", `{"order":1}`, second, http.StatusNoContent},
		{secret, "order-2", "", same, http.StatusNoContent},
		{newSecret(), "order-3", "{}", same, http.StatusUnauthorized},
		{secret, "order-3", "{}", func(h http.Header) { h.Set(signature.HeaderID, "order-4") }, http.StatusUnauthorized},
		{secret, "order-3", "{}", func(h http.Header) { h.Set(signature.HeaderTimestamp, "1614265330") }, http.StatusUnauthorized},
		{secret, "order-3", "{}", func(h http.Header) { h.Del(signature.HeaderSignature) }, http.StatusUnauthorized},
		{secret, "order-3", strings.Repeat(" ", maxBody+1), same, http.StatusBadRequest},
	} {
		if got := post(t, r, c.secret, c.id, c.body, c.edit); got != c.want {
			t.Errorf("request %d: answered %d, want %d", n, got, c.want)
		}
	}
	if status, err := forge(t.Context(), r.url); err != nil || status != http.StatusUnauthorized {
		t.Errorf("the forgery: %d, %v", status, err)
	}
	want := []arrival{
		{"order-1", "customer 01", "order.placed", `{"order":1}`, 1, false, false},
		{"order-1", "customer 01", "order.placed", `{"order":1}`, 2, true, true},
		{"order-2", "customer 01", "order.placed", "", 1, false, false},
	}
	got := r.since(0)
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("arrived\n%+v, want\n%+v", got, want)
		}
	}
	if len(got) != len(want) || len(r.since(2)) != 1 || r.refusals() != 5 {
		t.Errorf("arrived %d, after the second %d, refused %d", len(got), len(r.since(2)), r.refusals())
	}
}
