package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/webhook/signature"
)

// A redirect drops the body or takes it, signed, to somebody else, and counts as success:
// https://github.com/MrZoller/vantage-point/issues/49, https://github.com/ansible/awx/pull/13083,
// https://github.com/sourcegraph/sourcegraph-public-snapshot/issues/46346,
// https://github.com/keygen-sh/keygen-api/pull/1138
func TestRedirectIsAFailure(t *testing.T) {
	elsewhere := receive(t)
	for _, code := range []int{301, 302, 303, 307, 308} {
		r := receive(t)
		s := opened(t, to(r.url()+"/old", `, "signing": {"secrets": [{"value": "`+testSecret+`"}]}`))
		r.always(status(code, "Location", elsewhere.url()+"/new?token=hunter2"))
		outcome := send(t, s, record("a", "k"))[0]
		wantFailure(t, outcome, core.Retryable, core.ScopeSink, false, fmt.Sprintf("http_%d", code))
		if !strings.Contains(outcome.Message, elsewhere.url()+"/new") || strings.Contains(outcome.Message, "hunter2") {
			t.Errorf("%d: the message names the place without its query? %s", code, outcome.Message)
		}
		wantRequests(t, r, 1)
	}
	wantRequests(t, elsewhere, 0)
}

// Followed where the settings allow it, with body and method, each request signed; and not for ever.
func TestRedirectOnTheSameHost(t *testing.T) {
	r := receive(t)
	s := opened(t, to(r.url()+"/old", `, "follow_redirects": "same_host_307_308", "signing": {"secrets": [{"value": "`+testSecret+`"}]}`))
	r.then(status(307, "Location", "/new"), status(308, "Location", "/newer"), status(200))
	want(t, send(t, s, record("a", "k")), core.Delivered)
	keys := verifyKeys(t)
	for i, uri := range []string{"/old", "/new", "/newer"} {
		a := r.got()[i]
		if a.uri != uri || a.method != http.MethodPost || string(a.body) != `{"id":"a"}` {
			t.Errorf("request %d is %s %s with %s", i, a.method, a.uri, a.body)
		}
		if _, err := signature.Verify(a.header, a.body, keys, time.Now(), time.Minute); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	r.always(status(307, "Location", "/old"))
	wantFailure(t, send(t, s, record("b", "k"))[0], core.Retryable, core.ScopeSink, false, "http_307")
	wantRequests(t, r, 3+4)

	elsewhere := receive(t)
	r.always(status(307, "Location", elsewhere.url()+"/"))
	wantFailure(t, send(t, s, record("c", "k"))[0], core.Retryable, core.ScopeSink, false, "http_307")
	wantRequests(t, elsewhere, 0)
}

func verifyKeys(t testing.TB) []signature.Key {
	t.Helper()
	key, err := signature.ParseVerifyKey(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	return []signature.Key{key}
}

// An error of DNS, a refused connection or an error of TLS is not retried: https://github.com/hookdeck/outpost/issues/314,
// https://github.com/hookdeck/outpost/pull/600
// The true cause is lost: https://github.com/chatwoot/chatwoot/issues/15920
func TestNoConnectionIsTheSinksFailure(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	untrusted, _ := receiveTLS(t, true)
	trusted, ca := receiveTLS(t, true)
	plain := receive(t)
	for _, c := range []struct{ settings, code, says string }{
		{to("http://no-such-host.invalid/", `, "timeouts": {"connect": "10s"}`), "dns", "no-such-host.invalid"},
		{to("http://"+closed.Addr().String()+"/", ""), "connect", "refused"},
		{to(untrusted.url(), ""), "certificate", "certificate"},
		{to(trusted.url(), `, "tls": {"ca_file": "`+ca+`", "server_name": "other.example"}`), "certificate", "other.example"},
		{to("https://"+plain.address, ""), "tls", "handshake"},
	} {
		s := opened(t, c.settings)
		outcomes := send(t, s, record("a", "k"), record("b", "k"), record("c", ""))
		wantFailure(t, outcomes[0], core.Retryable, core.ScopeSink, false, c.code)
		want(t, outcomes[1:2], core.NotAttempted)
		if !strings.Contains(outcomes[0].Message, c.says) {
			t.Errorf("%s: the message does not name the cause: %s", c.code, outcomes[0].Message)
		}
		if err := s.Health(t.Context()); err == nil {
			t.Errorf("%s: Health is content", c.code)
		}
	}
	if n := len(untrusted.got()) + len(trusted.got()) + len(plain.got()); n > 0 {
		t.Errorf("%d requests went to receivers that are not who they should be", n)
	}
}

func TestHTTP2AndTLS(t *testing.T) {
	for _, mode := range []string{"auto", "off"} {
		r, ca := receiveTLS(t, true)
		s := opened(t, to(r.url(), `, "http2": "`+mode+`", "tls": {"ca_file": "`+ca+`"}`))
		var batch []core.Record
		for i := range 50 {
			batch = append(batch, record(fmt.Sprint(i), fmt.Sprint(i%10)))
		}
		for i, o := range send(t, s, batch...) {
			if o.Kind != core.Delivered {
				t.Fatalf("http2 %s: record %d: %+v", mode, i, o)
			}
		}
		_, connections := r.counts()
		for _, a := range r.got() {
			if want := map[string]string{"auto": "HTTP/2.0", "off": "HTTP/1.1"}[mode]; a.proto != want {
				t.Fatalf("http2 %s: a request over %s, want %s", mode, a.proto, want)
			}
		}
		if mode == "auto" && connections > 4 {
			t.Errorf("HTTP/2 took %d connections", connections)
		}
		if err := s.Health(t.Context()); err != nil {
			t.Errorf("http2 %s: Health: %v", mode, err)
		}
	}
}

// What was on the wire when the connection broke may have taken effect, and is not sent again behind our back, with a header
// that makes net/http do so or without.
func TestBrokenConnection(t *testing.T) {
	for _, more := range []string{"", `, "idempotency_header": {"name": "Idempotency-Key"}`} {
		r := receive(t)
		s := opened(t, to(r.url(), more))
		want(t, send(t, s, record("warm", "")), core.Delivered) // the next requests use a kept connection
		for i, fault := range []answer{reset(false), reset(true), raw(false, ""), raw(false, "HTTP/1.1 200"), raw(false, "not HTTP at all\r\n\r\n")} {
			before, _ := r.counts()
			r.then(fault)
			outcome := send(t, s, record(fmt.Sprintf("fault-%d", i), "k"))[0]
			wantFailure(t, outcome, core.Retryable, core.ScopeDefault, true, "connection_lost")
			wantRequests(t, r, before+1)
			want(t, send(t, s, record(fmt.Sprintf("fine-%d", i), "k")), core.Delivered)
		}
	}
}

// A receiver that closes a kept connection between two requests costs nothing: nothing of the second had been sent.
func TestKeptConnectionClosedByTheReceiver(t *testing.T) {
	r := receive(t)
	closed := make(chan bool, 1)
	keep := raw(false, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") // does not say that it will close
	r.always(answer{do: func(w http.ResponseWriter, request *http.Request) {
		keep.do(w, request)
		closed <- true
	}})
	s := opened(t, to(r.url(), ""))
	const n = 200
	for i := range n {
		want(t, send(t, s, record(fmt.Sprint(i), "k")), core.Delivered)
		<-closed
	}
	wantRequests(t, r, n)
}

func TestSlowHeader(t *testing.T) {
	r := receive(t)
	r.always(after(time.Minute, status(200)))
	for _, timeouts := range []string{`{"header": "100ms"}`, `{"connect": "100ms", "tls": "100ms", "header": "100ms", "total": "100ms"}`} {
		s := opened(t, to(r.url(), `, "timeouts": `+timeouts))
		begin := time.Now()
		outcome := send(t, s, record("a", "k"))[0]
		wantFailure(t, outcome, core.Retryable, core.ScopeDefault, true, "timeout")
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("timeouts %s: it took %v", timeouts, took)
		}
	}
}

// An answer without end. The status decides, and the body is nobody's business:
// https://github.com/hookdeck/outpost/issues/974
func TestEndlessAnswers(t *testing.T) {
	r := receive(t)
	s := opened(t, to(r.url(), ""))
	for _, c := range []struct {
		answer answer
		kind   core.OutcomeKind
	}{
		{endless(200, 0), core.Delivered}, {endless(200, 20*time.Millisecond), core.Delivered},
		{endless(500, 0), core.Retryable}, {endless(500, 20*time.Millisecond), core.Retryable},
	} {
		r.then(c.answer)
		begin := time.Now()
		outcome := send(t, s, record("a", "k"))[0]
		if outcome.Kind != c.kind || len(outcome.Message) > core.MaxErrorText {
			t.Errorf("outcome %+v, want %v and a short message", outcome, c.kind)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("an answer without end took %v", took)
		}
	}
}

func TestInformationalAnswers(t *testing.T) {
	r := receive(t)
	s := opened(t, to(r.url(), ""))
	r.then(informs(status(200), 102, 103, 103), informs(status(500), 103))
	want(t, send(t, s, record("a", "k")), core.Delivered)
	want(t, send(t, s, record("b", "k")), core.Retryable)
}

// An answer that comes before the request was read counts, although the rest of the request then finds a closed connection;
// else what is too large is sent for ever: https://github.com/JasperFx/wolverine/issues/3926
func TestEarlyAnswer(t *testing.T) {
	r := receive(t)
	r.always(raw(true, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
	s := opened(t, to(r.url(), `, "max_body_bytes": "64MiB"`))
	big := record("big", "k")
	big.Payload = make([]byte, 8<<20)
	wantFailure(t, send(t, s, big)[0], core.Permanent, core.ScopeDefault, false, "http_413")
}

// What a receiver says must not keep its failure from being written down: https://github.com/hatchet-dev/hatchet/pull/4619
func TestAnswerThatNoDatabaseTakes(t *testing.T) {
	r := receive(t)
	s := opened(t, to(r.url(), ""))
	for _, body := range []string{"a\x00b", "\xff\xfe", "\x1b[31mred\r\n", strings.Repeat("ü", 100_000)} {
		r.then(says(500, body))
		message := send(t, s, record("a", "k"))[0].Message
		if !utf8.ValidString(message) || strings.IndexFunc(message, unicode.IsControl) >= 0 || len(message) > core.MaxErrorText {
			t.Errorf("the answer %.20q makes the message %q", body, message)
		}
	}
}

// A second attempt has an empty body, a stale signature or another id: https://github.com/mattn/go-mastodon/pull/219,
// https://github.com/reapit/foundations/issues/10219, https://github.com/netalertx/NetAlertX/issues/1720,
// https://github.com/intuitem/ciso-assistant-community/pull/4216
func TestEveryAttemptIsWhole(t *testing.T) {
	r := receive(t)
	s := opened(t, to(r.url(), `, "signing": {"secrets": [{"value": "`+testSecret+`"}]}`))
	r.then(status(500), reset(false), status(503))
	keys := verifyKeys(t)
	rec := record("order-1", "k")
	for range 4 {
		_ = send(t, s, rec)
		rec.Deliveries++
	}
	attempts := r.got()
	if len(attempts) != 4 {
		t.Fatalf("%d requests, want 4", len(attempts))
	}
	for i, a := range attempts {
		id, err := signature.Verify(a.header, a.body, keys, a.at, 5*time.Second)
		if err != nil || id != "order-1" || string(a.body) != `{"id":"order-1"}` {
			t.Errorf("attempt %d: id %q, body %q, %v", i, id, a.body, err)
		}
		if got := a.header.Get("Connectd-Delivery"); got != fmt.Sprint(i+1) {
			t.Errorf("attempt %d says it is number %s", i, got)
		}
	}
}

// A token that is refused is renewed once, and the request repeated at once; then it is the receiver's failure.
func TestRefusedToken(t *testing.T) {
	var tokens atomic.Int64
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": fmt.Sprintf("token-%d", tokens.Add(1)), "token_type": "Bearer", "expires_in": 3600,
		})
	}))
	defer issuer.Close()
	settings := `, "auth": {"type": "oauth2", "token_url": "` + issuer.URL + `", "client_id": "c", "client_secret": "hunter2"}`

	r := receive(t)
	s := opened(t, to(r.url(), settings))
	r.then(status(401), status(200))
	want(t, send(t, s, record("a", "k")), core.Delivered)
	wantRequests(t, r, 2)
	if first, second := r.got()[0].header.Get("Authorization"), r.got()[1].header.Get("Authorization"); first != "Bearer token-1" || second != "Bearer token-2" {
		t.Errorf("the requests bore %q and %q", first, second)
	}

	r = receive(t)
	s = opened(t, to(r.url(), settings))
	r.always(status(401))
	wantFailure(t, send(t, s, record("a", "k"))[0], core.Retryable, core.ScopeSink, false, "http_401")
	wantRequests(t, r, 2)

	issuer.Close()
	s = opened(t, to(r.url(), settings))
	outcome := send(t, s, record("a", "k"))[0]
	wantFailure(t, outcome, core.Retryable, core.ScopeSink, false, "authorization")
	if strings.Contains(outcome.Message, "hunter2") {
		t.Errorf("the message shows a secret: %s", outcome.Message)
	}
	wantRequests(t, r, 2)
}

// A field that a record lacks is that record's failure, with a reason; others go on:
// https://github.com/hookdeck/outpost/pull/957
func TestRecordWithoutAField(t *testing.T) {
	r := receive(t)
	s := opened(t, to(r.url()+"/{header:tenant}", ""))
	with := func(id, tenant string) core.Record {
		rec := record(id, id)
		if tenant != "" {
			rec.Headers = []core.Header{{Name: "tenant", Value: tenant}}
		}
		return rec
	}
	outcomes := send(t, s, with("a", "x"), with("b", ""), with("c", "../y"))
	want(t, outcomes, core.Delivered, core.Permanent, core.Delivered)
	if !strings.Contains(outcomes[1].Message, "tenant") {
		t.Errorf("the reason does not name the field: %s", outcomes[1].Message)
	}
	for _, a := range r.got() {
		if a.uri != "/x" && a.uri != "/..%2Fy" {
			t.Errorf("a request went to %s", a.uri)
		}
	}
}

// A row's URL that leads inside: https://github.com/liwala/ay-framework/issues/301,
// https://github.com/Priyanshu-byte-coder/devtrack/issues/2564
func TestRowsURLThatLeadsInside(t *testing.T) {
	r := receive(t)
	_, port, _ := net.SplitHostPort(r.address)
	s := opened(t, to("{route}", `, "ssrf": {"allow_ports": [`+port+`]}`))
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"} {
		rec := record("a", "k")
		rec.Route = "http://" + host + ":" + port + "/"
		if o := send(t, s, rec)[0]; o.Kind == core.Delivered {
			t.Errorf("a request to %s was delivered", host)
		} else if host != "[::1]" { // which a machine without IPv6 cannot reach anyway
			wantFailure(t, o, core.Permanent, core.ScopeDefault, false, "refused")
		}
	}
	if _, connections := r.counts(); connections > 0 {
		t.Errorf("%d connections were made", connections)
	}
}

// A call that is ended is no failure of what had not begun, and says that it does not know of the rest:
// https://github.com/pal-tamas/rask/pull/566, https://github.com/dapr/dapr/issues/7258
func TestCallThatIsEnded(t *testing.T) {
	r := receive(t)
	r.always(after(time.Minute, status(200)))
	s := opened(t, to(r.url(), `, "concurrency": 2`))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for { // until two requests have arrived, which is what the window lets out
			if n, _ := r.counts(); n == 2 {
				cancel()
				return
			}
			select {
			case <-time.After(time.Millisecond):
			case <-t.Context().Done():
				return
			}
		}
	}()
	begin := time.Now()
	outcomes, err := s.Deliver(ctx, []core.Record{record("a", "a"), record("a2", "a"), record("b", "b"), record("c", "c"), record("d", "d")})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the call went on for %v", took)
	}
	unknown, notBegun := 0, 0
	for i, o := range outcomes {
		switch {
		case o.Kind == core.Retryable && o.Unknown:
			unknown++
		case o.Kind == core.NotAttempted:
			notBegun++
		default:
			t.Errorf("record %d: %+v", i, o)
		}
	}
	if unknown != 2 || notBegun != 3 {
		t.Errorf("%d records are unknown and %d not begun, want 2 and 3", unknown, notBegun)
	}
	if _, err := s.Deliver(ctx, []core.Record{record("e", "e")}); !errors.Is(err, core.ErrNotSent) {
		t.Errorf("a call whose context is done: %v", err)
	}
	wantRequests(t, r, 2)
}
