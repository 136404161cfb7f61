package daemon

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/core/memory"
)

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

func get(t *testing.T, h http.Handler, path string, change func(*http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8083"+path, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func testServer(token string, health ...Health) *server {
	return &server{
		token: token, loopback: true, registry: prometheus.NewRegistry(), log: silent(),
		connect: func() []Health { return slices.Clone(health) }, alive: func() error { return nil },
	}
}

func TestTokenGuardsEverythingButProbes(t *testing.T) {
	h := testServer("s3cret").handler()
	bearer := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", token) }
	}
	for _, c := range []struct {
		path, authorization string
		want                int
	}{
		{"/metrics", "", 401},
		{"/metrics", "Bearer wrong", 401},
		{"/metrics", "Basic s3cret", 401},
		{"/metrics", "Bearer", 401},
		{"/metrics", "Bearer s3cret", 200},
		{"/metrics", "bearer s3cret", 200},
		{"/", "", 401},
		{"/", "Bearer s3cret", 200},
		{"/healthz", "", 200},
		{"/readyz", "", 200},
		{"/nothing", "Bearer s3cret", 404},
	} {
		if got := get(t, h, c.path, bearer(c.authorization)).StatusCode; got != c.want {
			t.Errorf("GET %s with %q: %d, want %d", c.path, c.authorization, got, c.want)
		}
	}
}

// TestConsumersTokenIsForReceiptsOnly: with it nobody reads rows, or changes them.
func TestConsumersTokenIsForReceiptsOnly(t *testing.T) {
	table := memory.NewSource(1, time.Now)
	s := testServer("s3cret")
	s.receipts = "c0nsumer"
	s.connect = func() []Health { return []Health{{Name: "mails", State: Failed, Reason: "/srv/shop.db"}} }
	s.books = func() []bookkeeper { return []bookkeeper{{"orders", table, table, func([]core.ReceiptResult) {}}} }
	h := s.handler()
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"POST", "/api/v1/receipts", 200}, {"GET", "/api/v1/receipts", 200}, {"GET", "/healthz", 200},
		{"PUT", "/api/v1/receipts", 403}, {"GET", "/api/v1/rows", 403}, {"GET", "/api/v1/rows/row?id=a", 403}, {"POST", "/api/v1/rows/retry", 403},
		{"POST", "/api/v1/rows/skip", 403}, {"POST", "/api/v1/rows/release", 403}, {"GET", "/api/v1/audit", 403}, {"POST", "/api/v1/audit", 403},
		{"GET", "/metrics", 403}, {"GET", "/", 403}, {"GET", "/api/v1/receipts/", 403}, {"GET", "/api/v2", 403},
	} {
		for token, want := range map[string]int{"c0nsumer": c.want, "c0nsume": 401, "": 401} {
			r := httptest.NewRequest(c.method, "http://127.0.0.1:8083"+c.path, strings.NewReader(`{"command_id":"a","status":"done"}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if c.path == "/healthz" {
				want = 200
			}
			if w.Code != want {
				t.Errorf("%s %s with %q: %d, want %d", c.method, c.path, token, w.Code, want)
			}
		}
	}
	if text := body(t, get(t, h, "/readyz", func(r *http.Request) { r.Header.Set("Authorization", "Bearer c0nsumer") })); strings.Contains(text, "shop.db") {
		t.Errorf("/readyz: %s", text)
	}
	s.receipts = ""
	if r := get(t, s.handler(), "/api/v1/receipts", func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }); r.StatusCode != 401 {
		t.Errorf("no token of consumers, and none shown: %d", r.StatusCode)
	}
}

func TestLoopbackListenerRefusesForeignHostHeaders(t *testing.T) {
	h := testServer("").handler()
	for host, want := range map[string]int{
		"127.0.0.1:8083": 200, "localhost:8083": 200, "LOCALHOST": 200, "[::1]:8083": 200, "::1": 200, "127.0.0.53": 200,
		"evil.example": 403, "evil.example:8083": 403, "localhost.evil.example": 403, "10.0.0.1:8083": 403, "": 403,
		"127.0.0.1.evil.example": 403,
	} {
		if got := get(t, h, "/healthz", func(r *http.Request) { r.Host = host }).StatusCode; got != want {
			t.Errorf("Host %q: %d, want %d", host, got, want)
		}
	}
}

func TestListenBeyondLoopbackNeedsToken(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		if l, err := listen(address, ""); err == nil {
			_ = l.Close()
			t.Errorf("listening on %s without a token was allowed", address)
		} else if !strings.Contains(err.Error(), "daemon.token") {
			t.Errorf("%s: the error does not say what to do: %v", address, err)
		}
	}
	for address, token := range map[string]string{"0.0.0.0:0": "x", "127.0.0.1:0": "", "localhost:0": ""} {
		l, err := listen(address, token)
		if err != nil {
			t.Errorf("listen %s: %v", address, err)
			continue
		}
		_ = l.Close()
	}
}

func TestListenOnTakenPortNamesIt(t *testing.T) {
	l, err := listen("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err = listen(l.Addr().String(), ""); err == nil || !strings.Contains(err.Error(), l.Addr().String()) ||
		!strings.Contains(err.Error(), "--http") {
		t.Errorf("error: %v", err)
	}
}

func TestReadyzNamesConnectorAndReason(t *testing.T) {
	h := testServer("", Health{Name: "orders", Ready: true, State: Running},
		Health{Name: "mails", State: Failed, Reason: "no table outbox; run: connectd init"}).handler()
	r := get(t, h, "/readyz", nil)
	if r.StatusCode != 503 {
		t.Errorf("status %d, want 503", r.StatusCode)
	}
	var answer struct {
		Ready      bool
		Connectors []struct{ Name, State, Reason string }
	}
	if err := json.Unmarshal([]byte(body(t, r)), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Ready || len(answer.Connectors) != 2 || answer.Connectors[1].Name != "mails" ||
		!strings.Contains(answer.Connectors[1].Reason, "connectd init") {
		t.Errorf("answer: %+v", answer)
	}
}

// TestReadyzTellsReasonsOnlyToWhoMayKnow: probes need no token, and strangers get no paths and error texts.
func TestReadyzTellsReasonsOnlyToWhoMayKnow(t *testing.T) {
	h := testServer("s3cret", Health{Name: "mails", State: Failed, Reason: "source: /srv/shop.db: no such file"}).handler()
	for authorization, told := range map[string]bool{"": false, "Bearer wrong": false, "Bearer s3cret": true} {
		r := get(t, h, "/readyz", func(r *http.Request) { r.Header.Set("Authorization", authorization) })
		text := body(t, r)
		if r.StatusCode != 503 || !strings.Contains(text, "mails") || strings.Contains(text, "/srv/shop.db") != told {
			t.Errorf("with %q: %d %s", authorization, r.StatusCode, text)
		}
	}
}

func TestJudge(t *testing.T) {
	now := time.Now()
	good := Health{
		State: Running, Plugin: PluginHealth{Up: true, State: "running"},
		Engine: engine.Status{Gate: "open", LastRead: now.Add(-time.Second)},
	}
	for name, c := range map[string]struct {
		change func(*Health)
		reason string
	}{
		"good":        {func(*Health) {}, ""},
		"starting":    {func(h *Health) { h.State = Starting }, "starting"},
		"failed":      {func(h *Health) { h.State, h.Reason = Failed, "no table" }, "no table"},
		"never read":  {func(h *Health) { h.Engine.LastRead = time.Time{} }, "not read yet"},
		"stale":       {func(h *Health) { h.Engine.LastRead = now.Add(-time.Minute) }, "no successful read for 1m0s"},
		"source":      {func(h *Health) { h.Engine.SourceError = "database is locked" }, "database is locked"},
		"plugin":      {func(h *Health) { h.Plugin = PluginHealth{State: "backoff", Reason: "signal: killed"} }, "signal: killed"},
		"vacant":      {func(h *Health) { h.Vacant, h.Engine.Partitions = 2, 4 }, "no worker has had a lease on 2 of 4 partitions"},
		"gate":        {func(h *Health) { h.Engine.Gate, h.Engine.GateReason = "closed", "disk full" }, "closed: disk full"},
		"quarantined": {func(h *Health) { h.Engine.Gate = "quarantined" }, "quarantined"},
	} {
		h := good
		c.change(&h)
		h = judge(h, now, 30*time.Second)
		if h.Ready != (c.reason == "") || !strings.Contains(h.Reason, c.reason) {
			t.Errorf("%s: ready %v, reason %q", name, h.Ready, h.Reason)
		}
	}
}

func TestMetricsOfEverythingAnOperatorWatches(t *testing.T) {
	m := newMetrics("1.2.3", "abc")
	o := m.observe("orders", newMeter(time.Now))
	o.Read(7, time.Millisecond, nil)
	o.Called(4, time.Millisecond, map[core.OutcomeKind]int{core.Delivered: 2, core.Retryable: 1, core.Permanent: 1}, nil)
	o.Called(3, time.Millisecond, nil, core.ErrSinkDied)
	o.Settled(map[core.State]int{core.Published: 2, core.Pending: 1, core.Dead: 1}, 1, map[string]int{"invalid": 1})
	o.Stepped(time.Millisecond, nil)
	o.Acquired(1, 5)
	o.Lost(2)
	health := Health{
		Name: "orders", Ready: true, Plugin: PluginHealth{Up: true, Restarts: 3, Uptime: time.Minute},
		Engine: engine.Status{Gate: "open", Owned: 16}, Lag: &core.Lag{Pending: 9, Due: 8, OldestDue: 2 * time.Second},
	}
	unknown := Health{Name: "mails"}
	m.registry.MustRegister(newGauges(func() []Health { return []Health{health, unknown} }))
	s := testServer("")
	s.registry = m.registry
	text := body(t, get(t, s.handler(), "/metrics", nil))
	for _, line := range []string{
		`connectd_rows_read_total{connector="orders"} 7`,
		`connectd_sends_total{connector="orders"} 7`,
		`connectd_outcomes_total{connector="orders",outcome="delivered"} 2`,
		`connectd_outcomes_total{connector="orders",outcome="call_failed"} 3`,
		`connectd_attempts_total{connector="orders"} 2`,
		`connectd_retries_total{connector="orders"} 1`,
		`connectd_settled_rows_total{connector="orders",state="published"} 2`,
		`connectd_settled_rows_total{connector="orders",state="held"} 0`,
		`connectd_dead_rows_total{connector="orders",reason="invalid"} 1`,
		`connectd_leases_taken_over_total{connector="orders"} 1`,
		`connectd_rows_recovered_total{connector="orders"} 5`,
		`connectd_leases_lost_total{connector="orders"} 2`,
		`connectd_leases_held{connector="orders"} 16`,
		`connectd_lag_rows{connector="orders"} 9`,
		`connectd_oldest_due_age_seconds{connector="orders"} 2`,
		`connectd_plugin_restarts_total{connector="orders"} 3`,
		`connectd_plugin_up{connector="orders"} 1`,
		`connectd_gate_open{connector="mails"} 0`,
		`connectd_call_duration_seconds_count{connector="orders"} 2`,
		`connectd_batch_records_sum{connector="orders"} 7`,
		`connectd_build_info{goversion="`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("missing: %s", line)
		}
	}
	if strings.Contains(text, `connectd_lag_rows{connector="mails"}`) {
		t.Error("a lag that is not known is shown")
	}
}

func TestReasonLabelIsBounded(t *testing.T) {
	m := newMetrics("", "")
	o := m.observe("orders", newMeter(time.Now))
	for i := range 10 * maxReasons {
		o.Settled(nil, 0, map[string]int{"code-" + time.Duration(i).String(): 1})
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "connectd_dead_rows_total" && len(f.GetMetric()) != maxReasons+1 {
			t.Errorf("%d series, want %d", len(f.GetMetric()), maxReasons+1)
		}
	}
}

func TestMeter(t *testing.T) {
	now := time.Unix(1000, 0)
	m := newMeter(func() time.Time { return now })
	at := func(s int64) { now = time.Unix(1000+s, 0) }
	m.add(100)
	if got := m.perSecond(); got != 0 {
		t.Errorf("within the first second: %v", got)
	}
	at(1)
	if got := m.perSecond(); got != 100 {
		t.Errorf("after a second: %v", got)
	}
	at(10)
	if got := m.perSecond(); got != 10 {
		t.Errorf("after ten: %v", got)
	}
	at(11)
	if got := m.perSecond(); got != 0 {
		t.Errorf("after eleven: %v", got)
	}
	m.add(50)
	at(1000)
	if got := m.perSecond(); got != 0 {
		t.Errorf("after long silence: %v", got)
	}
}
