package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings/settingstest"
)

func documentation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/sinks/webhook.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is the code behind a mark in the documentation.
func block(t *testing.T, mark string) string {
	t.Helper()
	_, text, found := strings.Cut(documentation(t), "<!-- "+mark+" -->\n```")
	if !found {
		t.Fatalf("no block %s", mark)
	}
	_, text, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, "```\n")
	return text
}

// TestDocumentedSettings compares the table with the settings, both ways.
func TestDocumentedSettings(t *testing.T) {
	settingstest.Table(t, documentation(t), config{}, "batch", "auth", "idempotency_header")
}

// documented is the documentation's row, and the time at which it is sent.
func documented() (core.Record, time.Time) {
	r := order()
	r.Headers = []core.Header{{Name: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	return r, time.Unix(1774747802, 0)
}

// TestDocumentedRequest writes the request as it goes over the wire, and has the documented code verify it.
func TestDocumentedRequest(t *testing.T) {
	o := Options{Connector: "orders", Version: "1.0.0"}
	c, diagnostics := parse([]byte(`{"url":"https://shop.example/hooks/orders","signing":{"secrets":[{"value":"`+signingKey+`"}]}}`), o)
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	composer, err := newComposer(&c, o)
	if err != nil {
		t.Fatal(err)
	}
	r, now := documented()
	m, outcome := composer.compose([]core.Record{r}, []int{0})
	if outcome != nil {
		t.Fatal(*outcome)
	}
	request := received(t, m)
	request.Header = attempt(composer, m, now)
	var wire bytes.Buffer
	if err := request.Write(&wire); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.ReplaceAll(wire.String(), "\r\n", "\n")+"\n", block(t, "request"); got != want {
		t.Errorf("the request is\n%s\nthe documentation has\n%s", got, want)
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signingKey, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	wantVerified(t, secret, request.Header, m.body, now)
}

func wantVerified(t *testing.T, secret []byte, h http.Header, body []byte, now time.Time) {
	t.Helper()
	if id, err := verify(secret, h, body, now); err != nil || id != "c-1" {
		t.Errorf("%q, %v", id, err)
	}
	rotated := h.Clone()
	rotated.Set("webhook-signature", "v1,AAAA v1a,x "+h.Get("webhook-signature"))
	if _, err := verify(secret, rotated, body, now); err != nil {
		t.Error(err)
	}
	for name, try := range map[string]func() (string, error){
		"another body":   func() (string, error) { return verify(secret, h, append([]byte(" "), body...), now) },
		"another secret": func() (string, error) { return verify(secret[1:], h, body, now) },
		"too late":       func() (string, error) { return verify(secret, h, body, now.Add(6*time.Minute)) },
		"too early":      func() (string, error) { return verify(secret, h, body, now.Add(-6*time.Minute)) },
		"nothing":        func() (string, error) { return verify(secret, http.Header{}, body, now) },
	} {
		if _, err := try(); err == nil {
			t.Errorf("%s: verified", name)
		}
	}
}

// TestDocumentedCode holds that the code in the documentation is the code that the tests run.
func TestDocumentedCode(t *testing.T) {
	source, err := os.ReadFile("verify_test.go")
	if err != nil {
		t.Fatal(err)
	}
	if code := block(t, "verify"); !strings.HasSuffix(string(source), "\n"+code) {
		t.Errorf("verify_test.go does not end with\n%s", code)
	}
}

// TestDocumentedCodes names every code that an outcome can have.
func TestDocumentedCodes(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(documentation(t), "## Errors and what to do")
	written := regexp.MustCompile("(?:Code(?:: | = )|later\\(|unsendable\\()\"([a-z_]+)\"")
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		source, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range written.FindAllSubmatch(source, -1) {
			if !strings.Contains(table, "`"+string(m[1])+"`") {
				t.Errorf("the code %s of %s is not documented", m[1], file.Name())
			}
		}
	}
}

// TestDocumentedStatuses holds that the table of answers has every status that the judge has.
func TestDocumentedStatuses(t *testing.T) {
	_, table, _ := strings.Cut(documentation(t), "## What an answer means")
	table, _, _ = strings.Cut(table, "\n* ")
	j := judging(t, "")
	buried := ""
	for line := range strings.Lines(table) {
		if strings.Contains(line, "the record is buried") {
			buried = strings.Split(line, "|")[1]
		}
	}
	for status := 200; status < 600; status++ {
		isBuried := j.answer(messageOf(1), status, nil, nil).outcome.Kind == core.Permanent
		if named := regexp.MustCompile(`\b` + strconv.Itoa(status) + `\b`).MatchString(buried); named != isBuried {
			t.Errorf("%d: buried %v, documented so %v", status, isBuried, named)
		}
	}
}

func TestDocumentedTemplate(t *testing.T) {
	_, text, found := strings.Cut(block(t, "template"), "body_template: |\n")
	if !found {
		t.Fatal("no template")
	}
	settings := must(json.Marshal(map[string]string{"url": "https://example.com", "body": "template", "body_template": strings.TrimSpace(text)}))
	const want = `{"text": "OrderPlaced: order order-7", "total": 12.50, "raw": {"total":12.50}}`
	if m := composed(t, string(settings), order()); string(m.body) != want {
		t.Errorf("%s", m.body)
	}
}
