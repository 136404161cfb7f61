package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	webhookSecret  = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	webhookPrivate = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="
	webhookPublic  = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
	webhookBody    = `{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52-5198-4599-803e-771906343485"}}`
)

var webhookEnv = map[string]string{"SECRET": webhookSecret, "PRIVATE": webhookPrivate, "PUBLIC": webhookPublic, "BAD": "whsec_c2hvcnQ="}

// TestWebhookSign: the vector is the same as in package signature, and the official module verifies what is made now.
func TestWebhookSign(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "body.json", webhookBody)
	write(t, dir, "secret", webhookSecret+"\r\n")
	const want = "webhook-id: msg_2KWPBgLlAfxdpx2AI54pPJ85f4W\nwebhook-timestamp: 1674087231\n" +
		"webhook-signature: v1,4PMU5Dl90B4kgwxDpwuMZ/cnZ5ztf+Y+kviYQD66rJg=\n"
	vector := []string{"webhook", "sign", "--id", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "--timestamp", "1674087231"}
	for name, args := range map[string][]string{
		"stdin and environment": {"--secret-env", "SECRET"},
		"stdin by name":         {"--secret-env", "SECRET", "-"},
		"files":                 {"--secret-file", filepath.Join(dir, "secret"), filepath.Join(dir, "body.json")},
	} {
		r := connectdWith(t, dir, webhookBody, webhookEnv, append(vector, args...)...)
		if r.code != 0 || r.stdout != want || r.stderr != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	connectdWith(t, dir, webhookBody, webhookEnv, append(vector, "--secret-env", "PRIVATE")...).want(t, 0, "v1a,pbpYBMlty2hExn4zt0UTGb6BaP2V")

	r := connectdWith(t, dir, "a body", webhookEnv, "webhook", "sign", "--secret-env", "SECRET", "--id", "order 1", "--json")
	var signed map[string]string
	if err := json.Unmarshal([]byte(r.stdout), &signed); err != nil || len(signed) != 3 || signed["webhook-id"] != "b64_b3JkZXIgMQ" {
		t.Fatalf("%v: %+v", err, r)
	}
	h := http.Header{}
	for name, value := range signed {
		h.Set(name, value)
	}
	official, err := standardwebhooks.NewWebhook(webhookSecret)
	if err != nil {
		t.Fatal(err)
	}
	if err := official.Verify([]byte("a body"), h); err != nil {
		t.Error(err)
	}
}

func TestWebhookVerify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	body, headers := filepath.Join(dir, "body"), filepath.Join(dir, "headers")
	write(t, dir, "body", webhookBody)
	for secret, verifier := range map[string]string{"SECRET": "SECRET", "PRIVATE": "PUBLIC"} {
		r := connectdWith(t, dir, webhookBody, webhookEnv, "webhook", "sign", "--secret-env", secret, "--id", "order.1")
		r.want(t, 0)
		request := "POST /hooks?at=12:30 HTTP/1.1\r\nHost: example.com\r\n" + strings.ReplaceAll(r.stdout, "\n", "\r\n") + "Content-Type: text/plain\r\n\r\n"
		if err := os.WriteFile(headers, []byte(request), 0o600); err != nil {
			t.Fatal(err)
		}
		verify := func(stdin string, args ...string) result {
			return connectdWith(t, dir, stdin, webhookEnv, append([]string{"webhook", "verify", "--secret-env", verifier}, args...)...)
		}
		verify("", "--headers", headers, body).want(t, 0, "valid: row order.1\n")
		verify(webhookBody, "--headers", headers).want(t, 0, "valid")
		verify(request, "--headers", "-", body).want(t, 0, "valid")
		wrong := verify(webhookBody+"\n", "--headers", headers)
		wrong.want(t, 1, "not valid: no signature matches")
		if wrong.stdout != "" {
			t.Errorf("words on stdout: %s", wrong.stdout)
		}
		var answer verifiedView
		r = verify(webhookBody, "--headers", headers, "--json")
		if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || r.code != 0 || answer != (verifiedView{true, "b64_b3JkZXIuMQ", "order.1", ""}) {
			t.Errorf("%v: %+v", err, r)
		}
		answer = verifiedView{}
		r = verify("", "--headers", headers, "--json")
		if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || r.code != 1 || answer.Valid || answer.Error == "" || answer.ID != "" {
			t.Errorf("%v: %+v", err, r)
		}
		verify("", "--headers", body, body).want(t, 1, "has no webhook-id, no webhook-timestamp, no webhook-signature")
	}
	old := "webhook-id: msg_2KWPBgLlAfxdpx2AI54pPJ85f4W\nwebhook-timestamp: 1674087231\nwebhook-signature: v1,4PMU5Dl90B4kgwxDpwuMZ/cnZ5ztf+Y+kviYQD66rJg="
	verify := []string{"webhook", "verify", "--secret-env", "SECRET", "--headers", "-", body}
	connectdWith(t, dir, old, webhookEnv, verify...).want(t, 1, "ago, more than 5m0s")
	connectdWith(t, dir, old, webhookEnv, append(verify, "--tolerance", "36500d")...).want(t, 0, "valid: row msg_2KWP")
}

func TestWebhookUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, dir, "file", webhookSecret)
	write(t, dir, "large", strings.Repeat("x", maxWebhookSecret+1))
	for _, c := range []struct {
		args  string
		code  int
		words string
	}{
		{"webhook", 2, "needs one of: sign, verify"},
		{"webhook sgin", 2, `did you mean "sign"?`},
		{"webhook sign", 2, "needs --id ID"},
		{"webhook sign --id 1", 2, "--secret-env NAME or --secret-file FILE"},
		{"webhook sign --id 1 --secret-env SECRET --secret-file " + file, 2, "from one place"},
		{"webhook sign --id 1 --secret-env SECRET a b", 2, "takes one BODY"},
		{"webhook sign --id 1 --secret-env SECRET --timestamp 1.5", 2, "--timestamp: must be a whole number"},
		{"webhook sign --id 1 --secret-env SECRET " + dir + "/none", 1, "read the body"},
		{"webhook sign --id 1 --secret-env PUBLIC", 1, "must be a key that signs"},
		{"webhook sign --id 1 --secret-env BAD", 1, "must hold 24 to 64 bytes"},
		{"webhook sign --id 1 --secret-env " + webhookSecret, 1, "names is not set"},
		{"webhook sign --id 1 --secret-file " + webhookSecret, 1, "no such file"},
		{"webhook sign --id 1 --secret-file " + dir + "/large", 1, "more than 4096 bytes"},
		{"webhook verify --secret-env SECRET", 2, "needs --headers FILE"},
		{"webhook verify --secret-env SECRET --headers -", 2, "only one of"},
		{"webhook verify --secret-env SECRET --headers " + file + " --tolerance 5", 2, "--tolerance: must be a duration with a unit"},
		{"webhook verify --secret-env PRIVATE --headers " + file, 1, "must be a key that verifies"},
		{"webhook verify --secret-env SECRET --headers " + dir + "/none", 1, "read the headers"},
	} {
		r := connectdWith(t, dir, "", webhookEnv, strings.Fields(c.args)...)
		r.want(t, c.code, c.words)
		if r.stdout != "" || strings.Contains(r.stderr, webhookSecret) {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
}
