package webhook

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/webhook/signature"
)

const secondKey = "whsec_Y29ubmVjdGQtdGVzdC1zZWNyZXQtMzItYnl0ZXMhIQ=="

// attempt is a message with the headers of one attempt.
func attempt(c *composer, m *message, now time.Time) http.Header {
	c.sign(m, now)
	return m.header.Clone()
}

// TestSignatureCoversTheBytesSent verifies with the official module, for every body there is:
// https://github.com/netalertx/NetAlertX/issues/1720
func TestSignatureCoversTheBytesSent(t *testing.T) {
	verifier, err := standard.NewWebhook(signingKey)
	if err != nil {
		t.Fatal(err)
	}
	r := order()
	r.ID, r.Payload = "a.b/ü", []byte(`{"text":"grüße 😀",  "n":1.0}`+"\n")
	for _, settings := range []string{
		``, `,"body":"ce_binary"`, `,"body":"ce_structured"`, `,"body":"ce_batch"`, `,"batch":{}`, `,"batch":{"format":"ndjson"}`,
		`,"body":"template","body_template":"<{{.ID}}>"`, `,"compress":"gzip"`, `,"batch":{},"compress":"gzip"`,
	} {
		c := composing(t, `{"url":"https://example.com","signing":{"secrets":[{"value":"`+signingKey+`"}]}`+settings+`}`)
		m, outcome := c.compose([]core.Record{r}, []int{0})
		if outcome != nil {
			t.Fatal(settings, *outcome)
		}
		if err := verifier.Verify(m.body, attempt(c, m, time.Now())); err != nil {
			t.Errorf("%s: %v", settings, err)
		}
		if err := verifier.Verify(append(m.body[:len(m.body):len(m.body)], '\n'), attempt(c, m, time.Now())); err == nil {
			t.Errorf("%s: the signature covers other bytes too", settings)
		}
	}
}

// TestEachAttemptIsSignedAnew: an old timestamp fails the receiver's tolerance.
func TestEachAttemptIsSignedAnew(t *testing.T) {
	c := composing(t, `{"url":"https://example.com","signing":{"secrets":[{"value":"`+signingKey+`"}]}}`)
	m, _ := c.compose([]core.Record{order()}, []int{0})
	key, err := signature.ParseVerifyKey(signingKey)
	if err != nil {
		t.Fatal(err)
	}
	body := string(m.body)
	for _, at := range []int64{1_700_000_000, 1_700_000_600} {
		now := time.Unix(at, 0)
		h := attempt(c, m, now)
		if _, err := signature.Verify(h, m.body, []signature.Key{key}, now, time.Second); err != nil {
			t.Error(err)
		}
		if h.Get("webhook-id") != "c-1" || string(m.body) != body {
			t.Errorf("the message changed: %v", m)
		}
	}
}

// TestRotation signs with all secrets in force, so that either verifies.
func TestRotation(t *testing.T) {
	c := composing(t, `{"url":"https://example.com","signing":{"secrets":[{"value":"`+signingKey+`"},
		{"value":"`+secondKey+`","not_after":"2100-01-01T00:00:00Z"}]}}`)
	m, _ := c.compose([]core.Record{order()}, []int{0})
	end := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, v := range []struct {
		key string
		now time.Time
		ok  bool
	}{
		{signingKey, end.Add(-time.Second), true}, {secondKey, end.Add(-time.Second), true},
		{signingKey, end, true}, {secondKey, end, false},
	} {
		key, err := signature.ParseVerifyKey(v.key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = signature.Verify(attempt(c, m, v.now), m.body, []signature.Key{key}, v.now, time.Second)
		if (err == nil) != v.ok {
			t.Errorf("%.10s at %v: %v", v.key, v.now, err)
		}
	}
}

func TestSchemes(t *testing.T) {
	now := time.Unix(1674087231, 0)
	r := order()
	r.Payload = []byte("Hello, World!")
	for settings, want := range map[string]string{
		`{}`:                "",
		`{"scheme":"none"}`: "",
		`{"scheme":"github","secrets":[{"value":"It's a Secret to Everybody"}]}`:// GitHub's published value
		"X-Hub-Signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17\n",
		`{"scheme":"stripe","secrets":[{"value":"whsec_test_secret"},{"value":"whsec_other_secret","not_after":"2000-01-01T00:00:00Z"}]}`: "Stripe-Signature: " +
			signature.Stripe([][]byte{[]byte("whsec_test_secret")}, now, r.Payload) + "\n",
	} {
		c := composing(t, `{"url":"https://example.com","signing":`+settings+`}`)
		m, _ := c.compose([]core.Record{r}, []int{0})
		signed := http.Header{}
		c.signer.sign(signed, m.id, m.body, now)
		if got := headers(t, signed); got != want {
			t.Errorf("%s: %q, want %q", settings, got, want)
		}
		if m.header.Get("webhook-id") != "c-1" {
			t.Errorf("%s: no webhook-id in %v", settings, m.header)
		}
	}
}

// TestSvixPrefix sends both sets, so that receivers can move from one to the other.
func TestSvixPrefix(t *testing.T) {
	c := composing(t, `{"url":"https://example.com","signing":{"header_prefix":"svix-","secrets":[{"value":"`+signingKey+`"}]}}`)
	m, _ := c.compose([]core.Record{order()}, []int{0})
	h := attempt(c, m, time.Now())
	for _, name := range []string{"id", "timestamp", "signature"} {
		if h.Get("webhook-"+name) == "" || h.Get("webhook-"+name) != h.Get("svix-"+name) {
			t.Errorf("%s: %q and %q", name, h.Get("webhook-"+name), h.Get("svix-"+name))
		}
	}
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Connector: "shop", Dir: dir}
	c, diagnostics := parse([]byte(`{"url":"https://example.com","signing":{"secrets":[{"file":"secret"}]}}`), o)
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	for text, words := range map[string]string{
		signingKey: "", signingKey + "\n": "", signingKey + "\r\n": "", "": "empty", "\n": "empty", "hunter2": "signing.secrets.0",
		"whsec_hunter2": "signing.secrets.0", strings.Repeat("a", 64<<10+1): "bytes",
	} {
		write(text)
		_, err := newComposer(&c, o)
		switch {
		case (err == nil) != (words == ""):
			t.Errorf("%.20q: %v", text, err)
		case err != nil && (!strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%.20q: %v, want %q", text, err, words)
		}
	}
	if err := os.Remove(filepath.Join(dir, "secret")); err != nil {
		t.Fatal(err)
	}
	if _, err := newComposer(&c, o); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}
