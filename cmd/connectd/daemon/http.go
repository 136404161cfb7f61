package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

// maxHeader bounds a request's header in bytes.
const maxHeader = 16 << 10

const index = `connectd

  /healthz   200 while the process and its loops live
  /readyz    200 when every connector is ready, else 503 with the reasons
  /metrics   for Prometheus

  POST /api/v1/receipts                        consumers' receipts, one or many
  GET  /api/v1/receipts?connector=&command=    what is stored

  POST /api/v1/audit?connector=                an audit, which takes its time
  GET  /api/v1/audit?connector=                the last one
`

// server answers for the daemon over HTTP.
type server struct {
	token    string
	loopback bool // listening on loopback: only such Host headers are answered
	connect  func() []Health
	books    func() []bookkeeper
	audits   func() []audited
	alive    func() error
	registry *prometheus.Registry
	log      *slog.Logger
}

// handler is everything the listener serves.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.authenticated(promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})))
	mux.Handle("POST /api/v1/receipts", s.authenticated(http.HandlerFunc(s.postReceipts)))
	mux.Handle("GET /api/v1/receipts", s.authenticated(http.HandlerFunc(s.getReceipts)))
	mux.Handle("POST /api/v1/audit", s.authenticated(http.HandlerFunc(s.postAudit)))
	mux.Handle("GET /api/v1/audit", s.authenticated(http.HandlerFunc(s.getAudit)))
	mux.Handle("GET /{$}", s.authenticated(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(index))
	})))
	return s.guarded(mux)
}

// guarded refuses requests that a browser was tricked into, and sets the headers every answer has.
func (s *server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if s.loopback && !loopbackHost(r.Host) {
			http.Error(w, "this listener serves localhost only; the Host header names another host", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knows says whether the request shows the bearer token, if there is one. The comparison takes the same time for any
// wrong token.
func (s *server) knows(r *http.Request) bool {
	if s.token == "" {
		return true
	}
	want := sha256.Sum256([]byte(s.token))
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	got := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return strings.EqualFold(scheme, "bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// authenticated asks for the bearer token.
func (s *server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.knows(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="connectd"`)
			http.Error(w, "a bearer token is needed (daemon.token)", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
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
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    maxHeader,
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
	err := srv.Serve(netutil.LimitListener(l, maxConnections))
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP on %s: %w", l.Addr(), err)
	}
	<-stopped
	return nil
}
