package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/connectd/connectd/core"
)

// broken is an audit with one finding.
func broken() core.Audit {
	return core.Audit{At: time.Now(), Took: time.Second, Laws: []core.Law{
		{Name: core.LawIdentity, Checked: true, Figures: []core.Figure{{Name: "rows", Count: 2}}, Breaches: []core.Breach{{Total: 1, IDs: []string{"a"}, Say: "twice", Do: "mend it"}}},
	}}
}

// ask asks for an audit, with POST, or for the last one.
func askAudit(t *testing.T, s *server, method string) (int, auditAnswer) {
	t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:8083/api/v1/audit", nil)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	var a auditAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Errorf("%s: %v", w.Body, err)
	}
	return w.Code, a
}

func TestAnAuditIsAskedForOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("orders")
		goOn := make(chan error)
		r.audit = func(context.Context, core.AuditRequest) (core.Audit, error) { return broken(), <-goOn }
		runners, _, stop := start(t, nil, r)
		s := testServer("")
		s.audits = func() []audited { return auditsOf(runners) }
		s.registry.MustRegister(newAuditGauges(s.audits))
		if status, a := askAudit(t, s, http.MethodGet); status != 200 || a.Last != nil || a.Running {
			t.Errorf("before: %d %+v", status, a)
		}
		if status, a := askAudit(t, s, http.MethodPost); status != 202 || !a.Running {
			t.Errorf("asked: %d %+v", status, a)
		}
		synctest.Wait()
		if status, _ := askAudit(t, s, http.MethodPost); status != http.StatusConflict {
			t.Errorf("asked again: %d", status)
		}
		goOn <- nil
		synctest.Wait()
		_, a := askAudit(t, s, http.MethodGet)
		if a.Running || a.Last == nil || a.Last.OK || a.Last.Laws[0].Findings[0].IDs[0] != "a" || a.Last.Laws[0].Figures["rows"] != 2 {
			t.Errorf("after: %+v", a)
		}
		time.Sleep(time.Minute)
		want := map[string]float64{"connectd_audit_ok": 0, "connectd_audit_findings": 1, "connectd_audit_age_seconds": 60}
		if got := gathered(t, s.registry); len(got) != 3 || got["connectd_audit_ok"] != want["connectd_audit_ok"] || got["connectd_audit_findings"] != 1 || got["connectd_audit_age_seconds"] != 60 {
			t.Errorf("metrics: %v, want %v", got, want)
		}
		askAudit(t, s, http.MethodPost)
		goOn <- errors.New("dial tcp 10.0.0.1:5432: the time is over")
		synctest.Wait()
		if _, a := askAudit(t, s, http.MethodGet); a.Error != noAudit || a.Last == nil {
			t.Errorf("after one that failed: %+v", a)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// An audit that can never run is an alarm too: it is not ok, and its age grows from the daemon's beginning.
func TestAuditsInVainAreAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig("orders")
		r.AuditEvery = time.Hour
		wrong := errors.New("no such column")
		r.audit = func(context.Context, core.AuditRequest) (core.Audit, error) { return core.Audit{At: time.Now()}, wrong }
		runners, _, stop := start(t, nil, r)
		s := testServer("")
		s.registry.MustRegister(newAuditGauges(func() []audited { return auditsOf(runners) }))
		time.Sleep(time.Minute)
		if got := gathered(t, s.registry); len(got) != 0 {
			t.Errorf("before the first audit: %v", got)
		}
		time.Sleep(29 * time.Minute)
		got := gathered(t, s.registry)
		if ok, is := got["connectd_audit_ok"]; !is || ok != 0 || got["connectd_audit_age_seconds"] != 1800 {
			t.Errorf("after an audit in vain: %v", got)
		}
		wrong = nil
		time.Sleep(time.Hour)
		if got := gathered(t, s.registry); got["connectd_audit_ok"] != 1 || got["connectd_audit_age_seconds"] > 3600 {
			t.Errorf("after a result: %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return values
}

// Of many daemons on a table one audits it by itself, and a daemon that stops does not wait for an audit.
func TestAuditsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var audits atomic.Int32
		r := newRig("orders")
		r.AuditEvery = time.Hour
		r.audit = func(ctx context.Context, _ core.AuditRequest) (core.Audit, error) {
			audits.Add(1)
			<-ctx.Done()
			return core.Audit{}, ctx.Err()
		}
		_, _, stop := start(t, nil, r)
		time.Sleep(time.Second) // it has the leases
		_, _, stopOther := start(t, nil, r)
		time.Sleep(9 * time.Minute)
		if n := audits.Load(); n != 0 {
			t.Errorf("%d audits at once", n)
		}
		time.Sleep(2 * time.Minute)
		if n := audits.Load(); n != 1 {
			t.Errorf("%d audits after ten minutes", n)
		}
		for _, stop := range []func() error{stopOther, stop} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// The result of a daemon that no longer audits is no alarm for ever.
func TestAnOldResultIsForgottenWhenAnotherDaemonAudits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var audits atomic.Int32
		r := newRig("orders")
		r.AuditEvery = time.Hour
		r.audit = func(context.Context, core.AuditRequest) (core.Audit, error) {
			audits.Add(1)
			return broken(), nil
		}
		runners, _, stop := start(t, nil, r)
		time.Sleep(time.Second) // it has the leases
		others, _, stopOther := start(t, nil, r)
		others[0].auditing.want()
		time.Sleep(time.Minute)
		for range 3 {
			if last, _, _ := others[0].auditing.state(); last == nil && audits.Load() == 1 {
				t.Error("what was asked for has no result")
			}
			time.Sleep(time.Hour)
			if last, _, _ := others[0].auditing.state(); last != nil {
				t.Error("the result of the daemon that does not audit is kept")
			}
			if last, _, _ := runners[0].auditing.state(); last == nil {
				t.Error("the result of the daemon that audits is not kept")
			}
		}
		if n := audits.Load(); n != 4 {
			t.Errorf("%d audits: one that was asked for, and three in three hours", n)
		}
		for _, stop := range []func() error{stopOther, stop} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAuditsNeedTheirConnector(t *testing.T) {
	s := testServer("s3cret")
	s.audits = func() []audited { return []audited{{"a", newAuditing(nil)}, {"b", newAuditing(nil)}} }
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer s3cret") }
	for path, want := range map[string]int{"": 400, "?connector=a": 200, "?connector=c": 404} {
		if r := get(t, s.handler(), "/api/v1/audit"+path, bearer); r.StatusCode != want {
			t.Errorf("%s: %d %s", path, r.StatusCode, body(t, r))
		}
	}
	if r := get(t, s.handler(), "/api/v1/audit?connector=a", nil); r.StatusCode != 401 {
		t.Errorf("without a token: %d", r.StatusCode)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8083/api/v1/audit?connector=a", strings.NewReader(""))
	bearer(r)
	s.handler().ServeHTTP(w, r)
	if w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("a form's POST: %d", w.Code)
	}
}
