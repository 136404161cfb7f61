package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

// maxHeader bounds a request's header in bytes.
const maxHeader = 16 << 10

const index = `connectd

  /healthz   200 while the process and its loops live
  /readyz    200 when every connector is ready, else 503 with the reasons
  /metrics   for Prometheus

  POST /api/v1/receipts                        consumers' receipts, one or many
  GET  /api/v1/receipts?connector=&command=&after=&after_consumer=&limit=

  GET  /api/v1/rows?connector=&state=&key=&type=&reason=&older=&newer=&after=&limit=
  GET  /api/v1/rows/row?connector=&id=         one row, with payload and history
  POST /api/v1/rows/{retry|skip|release}       rows by ids or a filter, or all

  POST /api/v1/audit?connector=                an audit, which takes its time
  GET  /api/v1/audit?connector=                the last one
`

// server answers for the daemon over HTTP.
type server struct {
	token    string
	receipts string // a token that is for receipts only; may be empty
	loopback bool   // listening on loopback: only such Host headers are answered
	connect  func() []Health
	books    func() []bookkeeper
	audits   func() []audited
	alive    func() error
	registry *prometheus.Registry
	log      *slog.Logger

	bodyTimeout time.Duration // 0: bodyTimeout
}

// handler is everything the listener serves.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.authenticated(promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})))
	s.api(mux)
	mux.Handle("GET /{$}", s.authenticated(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(index))
	})))
	return s.guarded(mux)
}

// api serves what programs ask for. Every answer is JSON, errors too.
func (s *server) api(mux *http.ServeMux) {
	type route struct {
		method, path string
		parameters   []string
		handle       http.HandlerFunc
	}
	bodies := newBodies(s)
	routes := []route{
		{"POST", "/api/v1/receipts", nil, bodies.within(maxReceiptsBody, s.postReceipts)},
		{"GET", "/api/v1/receipts", []string{"connector", "command", "limit", "after", "after_consumer"}, s.getReceipts},
		{"POST", "/api/v1/audit", []string{"connector"}, s.postAudit},
		{"GET", "/api/v1/audit", []string{"connector"}, s.getAudit},
		{"GET", "/api/v1/rows", append([]string{"connector", "limit", "after"}, rowwork.FilterNames()...), s.getRows},
		{"GET", "/api/v1/rows/row", []string{"connector", "id"}, s.getRow},
	}
	for _, verb := range rowwork.Verbs() {
		limit := int64(maxIDsBody)
		if verb == rowwork.Retry {
			limit = maxRowsBody
		}
		post := func(w http.ResponseWriter, r *http.Request) { s.postRows(verb, w, r) }
		routes = append(routes, route{"POST", "/api/v1/rows/" + string(verb), nil, bodies.within(limit, post)})
	}
	allowed := map[string][]string{}
	for _, route := range routes {
		mux.Handle(route.method+" "+route.path, s.permitted(route.path == "/api/v1/receipts", s.knowing(route.parameters, route.handle)))
		allowed[route.path] = append(allowed[route.path], route.method)
	}
	for path, methods := range allowed {
		mux.Handle(path, s.authenticated(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			s.answer(w, nil, refuse(http.StatusMethodNotAllowed, "use %s", strings.Join(methods, " or ")))
		})))
	}
	mux.Handle("/api/", s.authenticated(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.answer(w, nil, refuse(http.StatusNotFound, "there is nothing here; GET / lists what there is"))
	})))
}

// knowing refuses a request with a parameter of another name, or with one twice. That is more likely a slip of the pen than to be passed over:
// the answer would be to another question.
func (s *server) knowing(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			s.answer(w, nil, refuse(http.StatusBadRequest, "the parameters cannot be read: %s", core.CleanText(err.Error())))
			return
		}
		for _, name := range slices.Sorted(maps.Keys(q)) {
			if !slices.Contains(names, name) {
				s.answer(w, nil, refuse(http.StatusBadRequest, "no parameter here is named %q%s", core.CleanText(name), settings.DidYouMean(name, names)))
				return
			}
			if len(q[name]) > 1 {
				s.answer(w, nil, refuse(http.StatusBadRequest, "parameter %s is there %d times", name, len(q[name])))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// refuse answers with an error, as JSON to programs that ask the API.
func (s *server) refuse(w http.ResponseWriter, r *http.Request, status int, text string) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		s.answer(w, nil, refuse(status, "%s", text))
		return
	}
	http.Error(w, text, status)
}

// busy refuses what there is no room for now.
func (s *server) busy(w http.ResponseWriter, r *http.Request, text string) {
	w.Header().Set("Retry-After", "1")
	s.refuse(w, r, http.StatusServiceUnavailable, text)
}

// guarded refuses requests that a browser was tricked into, and sets the headers every answer has.
func (s *server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if s.loopback && !loopbackHost(r.Host) {
			s.refuse(w, r, http.StatusForbidden, "this listener serves localhost only; the Host header names another host")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knows says whether the request shows the bearer token, if there is one.
func (s *server) knows(r *http.Request) bool { return s.token == "" || shows(r, s.token) }

// shows says whether the request shows this token. The comparison takes the same time for any wrong one.
func shows(r *http.Request, token string) bool {
	want := sha256.Sum256([]byte(token))
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got := sha256.Sum256([]byte(strings.TrimSpace(shown)))
	return strings.EqualFold(scheme, "bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// authenticated asks for the bearer token.
func (s *server) authenticated(next http.Handler) http.Handler { return s.permitted(false, next) }

// permitted asks for the bearer token, or, for receipts, for the one of consumers.
func (s *server) permitted(receipts bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		consumer := s.receipts != "" && shows(r, s.receipts)
		switch known := s.knows(r); {
		case !known && consumer && !receipts:
			s.refuse(w, r, http.StatusForbidden, "daemon.receipts_token is for /api/v1/receipts only; this needs daemon.token")
		case !known && !consumer:
			w.Header().Set("WWW-Authenticate", `Bearer realm="connectd"`)
			s.refuse(w, r, http.StatusUnauthorized, "a bearer token is needed (daemon.token)")
		case !hold(r):
			s.busy(w, r, "too many requests are running: send it again")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := s.alive(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// readyz lists every connector with its reason, so that whoever is paged reads what is wrong in the probe's answer. A
// reason quotes paths, addresses and what a destination said: where there is a token, only who shows it reads that.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	answer := struct {
		Ready      bool     `json:"ready"`
		Connectors []Health `json:"connectors"`
	}{Ready: true, Connectors: s.connect()}
	known := s.knows(r)
	for i := range answer.Connectors {
		h := &answer.Connectors[i]
		answer.Ready = answer.Ready && h.Ready
		if !known {
			h.Reason = ""
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if !answer.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(answer); err != nil {
		s.log.Debug("writing the readiness answer failed", "error", err)
	}
}

// serve answers on l until ctx is done, then lets running requests end for a second.
func (s *server) serve(ctx context.Context, l net.Listener) error {
	crowd := newCrowd()
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      bodyWait + bodyTimeout + max(receiptsTimeout, rowsTimeout) + 5*time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    maxHeader,
		ConnState:         crowd.changed,
		ConnContext:       crowd.context,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if srv.Shutdown(bounded) != nil {
			_ = srv.Close()
		}
	}()
	err := srv.Serve(l)
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP on %s: %w", l.Addr(), err)
	}
	<-stopped
	return nil
}
