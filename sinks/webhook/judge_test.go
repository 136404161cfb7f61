package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/webhook/egress"
)

// judging returns a judge with a clock that stands still and without chance.
func judging(t testing.TB, settings string) *judge {
	t.Helper()
	c, diagnostics := parse([]byte(`{"url":"https://example.com/hook?token=hunter2"`+settings+`}`), Options{Connector: "shop"})
	for _, d := range diagnostics {
		if !d.Warning {
			t.Fatalf("%s: %+v", settings, d)
		}
	}
	j := newJudge(&c)
	j.now = func() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }
	j.random = func() float64 { return 0 }
	return j
}

func messageOf(rows int) *message {
	m := &message{url: must1(parseURL("https://example.com/hook?token=hunter2", "")).static, endpoint: "https://example.com:443"}
	for i := range rows {
		m.records, m.rowIDs = append(m.records, i), append(m.rowIDs, fmt.Sprint("c-", i))
	}
	return m
}

func must1(t *urlTemplate, err error) *urlTemplate {
	if err != nil {
		panic(err)
	}
	return t
}

// meant describes a verdict in a few words.
func meant(v verdict) string {
	words := []string{v.outcome.Kind.String()}
	for word, is := range map[string]bool{"unknown": v.outcome.Unknown, "endpoint": v.endpoint} {
		if is {
			words = append(words, word)
		}
	}
	if len(words) == 3 && words[1] > words[2] {
		words[1], words[2] = words[2], words[1]
	}
	if v.trouble {
		words = append(words, "trouble")
	}
	if v.slower {
		words = append(words, "slower")
	}
	if v.reauthorize {
		words = append(words, "reauthorize")
	}
	if v.split {
		words = append(words, "split")
	}
	if v.outcome.RetryAfter > 0 {
		words = append(words, v.outcome.RetryAfter.String())
	}
	return strings.Join(words, " ")
}

// TestStatusTable names every row of the table in docs/sinks/webhook.md.
func TestStatusTable(t *testing.T) {
	const (
		endpoint  = "retryable endpoint"
		permanent = "permanent"
	)
	want := map[int]string{
		200: "delivered", 201: "delivered", 202: "delivered", 204: "delivered", 226: "delivered", 299: "delivered",
		207: "retryable unknown",
		101: endpoint, 300: endpoint, 301: endpoint, 302: endpoint, 303: endpoint, 304: endpoint, 307: endpoint, 308: endpoint,
		400: permanent, 422: permanent,
		401: "retryable endpoint reauthorize",
		402: endpoint, 403: endpoint, 407: endpoint,
		404: "retryable 30s",
		405: permanent, 406: permanent, 411: permanent, 414: permanent, 415: permanent, 428: permanent, 431: permanent,
		501: permanent, 505: permanent,
		408: "retryable", 421: "retryable", 423: "retryable", 425: "retryable", 449: "retryable",
		409: "retryable",
		410: endpoint,
		412: permanent, 417: permanent, 426: permanent, 451: permanent,
		413: permanent,
		418: "retryable", 424: "retryable", 499: "retryable", 600: "retryable", 999: "retryable",
		429: "throttled endpoint slower",
		500: "retryable trouble", 506: "retryable trouble", 507: "retryable trouble", 508: "retryable trouble", 511: "retryable trouble",
		520: "retryable trouble", 521: "retryable trouble", 522: "retryable trouble", 523: "retryable trouble", 524: "retryable trouble",
		525: "retryable trouble", 526: "retryable trouble", 527: "retryable trouble", 530: "retryable trouble", 599: "retryable trouble",
		502: "retryable trouble slower", 503: "retryable trouble slower", 504: "retryable trouble slower",
	}
	j := judging(t, "")
	for status, words := range want {
		v := j.answer(messageOf(1), status, http.Header{}, nil)
		if meant(v) != words {
			t.Errorf("%d means %q, want %q", status, meant(v), words)
		}
		several := j.answer(messageOf(3), status, http.Header{}, nil)
		if strings.HasPrefix(words, permanent) {
			words += " split"
		}
		if meant(several) != words || several.perRecord != nil {
			t.Errorf("%d to several rows means %q, want %q", status, meant(several), words)
		}
		if v.outcome.Kind != core.Delivered && (v.outcome.Code != fmt.Sprintf("http_%d", status) || !strings.Contains(v.outcome.Message, fmt.Sprint(status))) {
			t.Errorf("%d: %+v", status, v.outcome)
		}
	}
	for status := range 1000 { // nothing else is ever a delivery, and nothing goes without a word
		v := j.answer(messageOf(1), status, http.Header{}, nil)
		if (v.outcome.Kind == core.Delivered) != (status/100 == 2 && status != 207) || v.outcome.Kind == core.Unspecified {
			t.Errorf("%d means %q", status, meant(v))
		}
	}
}

func TestStatusWithRetryAfter(t *testing.T) {
	h := http.Header{"Retry-After": {"120"}}
	j := judging(t, "")
	for status, want := range map[int]string{
		200: "delivered",
		429: "throttled endpoint slower 2m0s",
		503: "throttled endpoint trouble slower 2m0s",
		413: "retryable 2m0s",
		404: "retryable 2m0s",
		500: "retryable trouble 2m0s",
		401: "retryable endpoint reauthorize 2m0s",
		400: "permanent",
	} {
		if got := meant(j.answer(messageOf(1), status, h, nil)); got != want {
			t.Errorf("%d means %q, want %q", status, got, want)
		}
	}
	if got := meant(j.answer(messageOf(2), 413, h, nil)); got != "retryable 2m0s" {
		t.Errorf("413 to two rows means %q", got)
	}
}

// TestStatusLists has the operator's word before the table's.
func TestStatusLists(t *testing.T) {
	for settings, want := range map[string]map[int]string{
		`,"success_status":["200"]`:         {200: "delivered", 201: "retryable unknown", 207: "retryable unknown", 204: "retryable unknown"},
		`,"success_status":["2xx","409"]`:   {200: "delivered", 207: "delivered", 409: "delivered", 404: "retryable 30s"},
		`,"retry_status":["400","5xx"]`:     {400: "retryable", 422: "permanent", 501: "retryable", 503: "retryable trouble slower"},
		`,"retry_status":["301"]`:           {301: "retryable", 302: "retryable endpoint"},
		`,"permanent_status":["404","410"]`: {404: "permanent", 410: "permanent", 403: "retryable endpoint"},
		`,"permanent_status":["500-599"]`:   {500: "permanent", 503: "permanent"},
		`,"throttle_status":["420","509"]`:  {420: "throttled endpoint slower", 509: "throttled endpoint slower", 429: "throttled endpoint slower"},
		`,"success_status":["404"]`:         {404: "delivered", 200: "retryable unknown"},
	} {
		j := judging(t, settings)
		for status, words := range want {
			if got := meant(j.answer(messageOf(1), status, http.Header{}, nil)); got != words {
				t.Errorf("%s: %d means %q, want %q", settings, status, got, words)
			}
		}
	}
	// A Retry-After changes the kind of what the settings do not name only.
	h := http.Header{"Retry-After": {"5"}}
	if got := meant(judging(t, `,"retry_status":["503"]`).answer(messageOf(1), 503, h, nil)); got != "retryable trouble slower 5s" {
		t.Error(got)
	}
	if got := meant(judging(t, `,"permanent_status":["413"]`).answer(messageOf(1), 413, h, nil)); got != "permanent" {
		t.Error(got)
	}
}

// TestReceipts: only where the settings say so an answer completes what it delivers, and only one of 2xx.
func TestReceipts(t *testing.T) {
	const on = `,"receipt":"on_2xx"`
	for _, c := range []struct {
		settings string
		status   int
		want     string // of each row: c completed, d delivered, - neither
	}{
		{"", 200, "dd"},
		{`,"receipt":"none"`, 204, "dd"},
		{on, 200, "cc"},
		{on, 201, "cc"},
		{on, 202, "cc"},
		{on, 299, "cc"},
		{on, 207, "--"},
		{on, 302, "--"},
		{on, 409, "--"},
		{on, 422, "--"},
		{on, 429, "--"},
		{on, 500, "--"},
		{on + `,"success_status":["2xx","409"]`, 200, "cc"},
		{on + `,"success_status":["2xx","409"]`, 409, "dd"},
		{on + `,"success_status":["2xx","409"]`, 207, "dd"}, // taken, and nobody says which row
		{on + `,"success_status":[202]`, 200, "--"},
		{on + `,"batch":{"per_row_results":""}`, 200, "c-"},
		{on + `,"batch":{"per_row_results":""}`, 207, "c-"},
		{on + `,"batch":{"per_row_results":""}`, 204, "cc"},
		{on + `,"batch":{"per_row_results":""},"success_status":["2xx","409"]`, 207, "cd"},
	} {
		j := judging(t, c.settings)
		v := j.answer(messageOf(2), c.status, http.Header{}, []byte(`[{"id":"c-0","status":200},{"id":"c-1","status":409}]`))
		outcomes := v.perRecord
		if outcomes == nil {
			outcomes = []core.Outcome{v.outcome, v.outcome}
		}
		got := ""
		for _, o := range outcomes {
			switch {
			case o.Kind == core.Delivered && o.Completed:
				got += "c"
			case o.Kind == core.Delivered:
				got += "d"
			case !o.Completed:
				got += "-"
			}
		}
		if got != c.want {
			t.Errorf("%s: %d gives %s, want %s", c.settings, c.status, got, c.want)
		}
	}
}

func TestAbortHeader(t *testing.T) {
	h := http.Header{"Webhook-Delivery": {"Abort-Message"}}
	for settings, want := range map[string]string{``: "retryable trouble", `,"abort_header":true`: "permanent"} {
		j := judging(t, settings)
		if got := meant(j.answer(messageOf(1), 500, h, nil)); got != want {
			t.Errorf("%s: %q, want %q", settings, got, want)
		}
		if got := meant(j.answer(messageOf(1), 200, h, nil)); got != "delivered" {
			t.Errorf("%s: 200 means %q", settings, got)
		}
	}
	j := judging(t, `,"abort_header":true`)
	if got := meant(j.answer(messageOf(1), 500, http.Header{"Webhook-Delivery": {"other"}}, nil)); got != "retryable trouble" {
		t.Error(got)
	}
}

// TestRedirectMessage names where a redirect leads, without what may be secret there.
func TestRedirectMessage(t *testing.T) {
	j := judging(t, "")
	for location, words := range map[string]string{
		"https://www.example.com/hook?token=hunter2#x": "to https://www.example.com/hook; a redirect is not followed",
		"https://u:hunter2@www.example.com/hook":       "to https://www.example.com/hook;",
		"/elsewhere?token=hunter2":                     "to /elsewhere;",
		"":                                             "the receiver answered 301 Moved Permanently",
		"https://[hunter2":                             "a place that is no URL",
		"/" + strings.Repeat("x", 5000):                "xxx...;",
	} {
		v := j.answer(messageOf(1), 301, http.Header{"Location": {location}}, nil)
		if !strings.Contains(v.outcome.Message, words) || strings.Contains(v.outcome.Message, "hunter2") || v.redirect != nil {
			t.Errorf("%.50s: %+v", location, v)
		}
	}
}

func TestFollowedRedirects(t *testing.T) {
	j := judging(t, `,"follow_redirects":"same_host_307_308"`)
	for location, want := range map[string]string{
		"/new?x=1":                      "https://example.com/new?x=1",
		"https://example.com:443/new#x": "https://example.com/new",
		"https://EXAMPLE.com/new":       "https://example.com/new",
		"//example.com/new":             "https://example.com/new",
		"http://example.com/new":        "",
		"https://example.com:444/new":   "",
		"https://evil.example/":         "",
		"https://u:p@example.com/":      "",
		"":                              "",
		"https://[":                     "",
	} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			v := j.answer(messageOf(1), status, http.Header{"Location": {location}}, nil)
			got := ""
			if v.redirect != nil {
				got = v.redirect.String()
			}
			wanted := want
			if status < 307 {
				wanted = ""
			}
			if got != wanted || v.outcome.Kind != core.Retryable || !v.endpoint {
				t.Errorf("%d to %q leads to %q, want %q", status, location, got, wanted)
			}
		}
	}
}

// TestMessageOfAnAnswer bounds and cleans what the receiver said, and hides what it repeats of the request:
// https://github.com/hatchet-dev/hatchet/pull/4619
func TestMessageOfAnAnswer(t *testing.T) {
	const auth = `,"auth":{"type":"basic","username":"user","password":"hunter2"},"signing":{"scheme":"github","secrets":[{"value":"hunter3-hunter3-hunter3"}]}`
	for name, c := range map[string]struct {
		settings string
		header   http.Header
		body     string
		want     string
	}{
		"plain":    {"", nil, "no stock", "the receiver answered 500 Internal Server Error: no stock"},
		"empty":    {"", nil, "", "the receiver answered 500 Internal Server Error"},
		"blanks":   {"", nil, "\r\n<p>\n\tno  stock\x07\x1b[31m</p>", "the receiver answered 500 Internal Server Error: <p> no stock [31m</p>"},
		"binary":   {"", nil, "\x00\x01\x02", "the receiver answered 500 Internal Server Error"},
		"latin1":   {"", nil, "caf\xe9", "the receiver answered 500 Internal Server Error: caf\uFFFD"},
		"packed":   {"", http.Header{"Content-Encoding": {"gzip"}}, "\x1f\x8b", "the receiver answered 500 Internal Server Error"},
		"nothing":  {`,"capture":{"bytes":0}`, nil, "no stock", "the receiver answered 500 Internal Server Error"},
		"some":     {`,"capture":{"bytes":4}`, nil, "no stock", "the receiver answered 500 Internal Server Error: no s"},
		"headers":  {`,"capture":{"headers":["x-request-id","x-none"]}`, http.Header{"X-Request-Id": {"r-1\x00"}}, "", "the receiver answered 500 Internal Server Error, x-request-id r-1 "},
		"password": {auth, nil, "you sent hunter2 as dXNlcjpodW50ZXIy", "the receiver answered 500 Internal Server Error: you sent *** as ***"},
		"api key":  {"", nil, "X-Api-Key: hunter4, X-Env: live", "the receiver answered 500 Internal Server Error: X-Api-Key: ***, X-Env: live"},
		"query":    {"", nil, "Cannot POST /hook?token=hunter2", "the receiver answered 500 Internal Server Error: Cannot POST /hook?***"},
		"token":    {"", nil, `{"authorization":"Bearer hunter5\/+","token":"hunter5/+"}`, `the receiver answered 500 Internal Server Error: {"authorization":"***","token":"***"}`},
		"key":      {"", nil, "order-7 is locked", "the receiver answered 500 Internal Server Error: order-7 is locked"},
		"captured": {`,"capture":{"headers":["x-echo"]}`, http.Header{"X-Echo": {"hunter5/+"}}, "", "the receiver answered 500 Internal Server Error, x-echo ***"},
		"cut":      {auth + `,"capture":{"bytes":8}`, nil, "sent hunter2", "the receiver answered 500 Internal Server Error: sent ***"},
		"secret":   {auth, nil, "key hunter3-hunter3-hunter3!", "the receiver answered 500 Internal Server Error: key ***!"},
	} {
		j := judging(t, c.settings)
		j = j.to(&egress.Request{URL: &url.URL{Scheme: "https", Host: "example.com", Path: "/hook", RawQuery: "token=hunter2"}, Header: http.Header{
			"X-Api-Key": {"hunter4"}, "X-Env": {"live"}, "Authorization": {"Bearer hunter5/+"}, "Connectd-Key": {"order-7"},
		}})
		body := []byte(c.body)
		v := j.answer(messageOf(1), 500, c.header, body[:min(len(body), j.capture())])
		if v.outcome.Message != c.want {
			t.Errorf("%s: %q, want %q", name, v.outcome.Message, c.want)
		}
	}
	long := judging(t, "").answer(messageOf(1), 500, nil, []byte(strings.Repeat("é", 1<<20)))
	if len(long.outcome.Message) > core.MaxErrorText {
		t.Errorf("a message of %d bytes", len(long.outcome.Message))
	}
}

// Every failure comes wrapped: https://github.com/JasperFx/wolverine/issues/3766
func TestFailures(t *testing.T) {
	certificate := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	refusal := fmt.Errorf("%w: address 127.0.0.1 is loopback", egress.ErrRefused)
	fail := func(phase egress.Phase, sent bool, err error) error {
		return fmt.Errorf("wrapped: %w", &egress.Error{Phase: phase, Sent: sent, Err: err})
	}
	one, many := judging(t, ""), judging(t, "")
	many.config.target = must1(parseURL("https://{key}.example.com", ""))
	reset := errors.New("connection reset by peer")
	for name, c := range map[string]struct {
		err        error
		code, want string
	}{
		"name":                {fail(egress.PhaseDNS, false, errors.New("no such host")), "dns", "retryable endpoint trouble"},
		"refused":             {fail(egress.PhaseConnect, false, reset), "connect", "retryable endpoint trouble"},
		"slow to connect":     {fail(egress.PhaseConnect, false, context.DeadlineExceeded), "connect", "retryable endpoint trouble slower"},
		"handshake":           {fail(egress.PhaseTLS, false, reset), "tls", "retryable endpoint trouble"},
		"certificate":         {fail(egress.PhaseTLS, false, certificate), "certificate", "retryable endpoint trouble"},
		"no connection":       {fail(egress.PhaseWait, false, context.DeadlineExceeded), "wait", "retryable endpoint trouble slower"},
		"before the write":    {fail(egress.PhaseWrite, false, reset), "write", "retryable endpoint trouble"},
		"reset after it":      {fail(egress.PhaseWrite, true, reset), "connection_lost", "retryable unknown trouble"},
		"no header":           {fail(egress.PhaseHeader, true, reset), "connection_lost", "retryable unknown trouble"},
		"slow header":         {fail(egress.PhaseHeader, true, context.DeadlineExceeded), "timeout", "retryable unknown trouble slower"},
		"an error of our own": {errors.New("what?"), "failed", "retryable unknown"},
		"no request":          {fail(egress.PhaseRequest, false, errors.New("no host")), "bad_request", "permanent"},
	} {
		for _, j := range []*judge{one, many} {
			v := j.failure(c.err)
			if meant(v) != c.want || v.outcome.Code != c.code || v.outcome.Message == "" {
				t.Errorf("%s: %q %+v, want %q %s", name, meant(v), v.outcome, c.want, c.code)
			}
		}
	}
	for _, phase := range []egress.Phase{egress.PhaseRequest, egress.PhaseConnect} {
		// A row that asks for what it must not have is buried; a setting that cannot work is for people to mend.
		if v := many.failure(fail(phase, false, refusal)); meant(v) != "permanent" || v.outcome.Code != "refused" {
			t.Errorf("%q %+v", meant(v), v.outcome)
		}
		if v := one.failure(fail(phase, false, refusal)); meant(v) != "retryable endpoint" || v.outcome.Code != "refused" {
			t.Errorf("%q %+v", meant(v), v.outcome)
		}
	}
}

// TestCertificateOfARealFailure finds the error as net/http wraps it.
func TestCertificateOfARealFailure(t *testing.T) {
	if !isCertificate(fmt.Errorf("x: %w", &tls.CertificateVerificationError{Err: x509.HostnameError{Host: "a", Certificate: &x509.Certificate{}}})) {
		t.Error("not recognised")
	}
	if isCertificate(errors.New("certificate")) {
		t.Error("recognised")
	}
}

// TestWordsOfAFailure says in the words of people what net/http says in its own, once.
func TestWordsOfAFailure(t *testing.T) {
	j := judging(t, "")
	for want, failed := range map[string]*egress.Error{
		"127.0.0.1:1: connect: connection refused": {Phase: egress.PhaseConnect, Err: errors.New("dial tcp 127.0.0.1:1: connect: connection refused")},
		"lookup a.invalid: no such host":           {Phase: egress.PhaseDNS, Err: errors.New("dial tcp: lookup a.invalid: no such host")},
		"first record is no handshake":             {Phase: egress.PhaseTLS, Err: errors.New("tls: first record is no handshake")},
		"time ran out while it connected":          {Phase: egress.PhaseConnect, Err: fmt.Errorf("dial: %w", context.DeadlineExceeded)},
		"no answer, and the request may have taken effect: the receiver closed the connection": {Phase: egress.PhaseHeader, Sent: true, Err: io.EOF},
		"no answer, and the request may have taken effect: malformed HTTP response": {
			Phase: egress.PhaseHeader, Sent: true, Err: errors.New("net/http: HTTP/1.x transport connection broken: malformed HTTP response"),
		},
	} {
		if got := j.failure(failed).outcome.Message; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for wait, want := range map[string]string{
		"30":   "the receiver answered 429 Too Many Requests and asks for 30s without requests: slow down",
		"0":    "the receiver answered 429 Too Many Requests and asks for 1s without requests: slow down",
		"soon": "the receiver answered 429 Too Many Requests: slow down",
	} {
		j.random = func() float64 { return 0 }
		if got := j.answer(messageOf(1), 429, http.Header{"Retry-After": {wait}}, []byte("slow down")).outcome.Message; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
