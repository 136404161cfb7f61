package daemon

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/connectd/connectd/core"
)

// auditing runs a connector's audits, one after the other, on connections of their own: they take long.
type auditing struct {
	slot chan struct{} // the daemon's: one audit at a time
	ask  chan struct{} // of one: an audit that is wanted

	mu      sync.Mutex
	running bool
	last    *core.Audit
	failed  string // why the last one came to no result
	// fruitless: audits were tried, and none came to a result. Begun is when this daemon began.
	fruitless bool
	begun     time.Time
}

func newAuditing(slot chan struct{}) *auditing {
	return &auditing{slot: slot, ask: make(chan struct{}, 1), begun: time.Now()}
}

// firstAudit is when a daemon that just started audits by itself: one that is started anew each day would else never do.
const firstAudit = 10 * time.Minute

// audits runs what is asked for, and one every so often, until ctx is done.
func (r *runner) audits(ctx context.Context) {
	due := time.NewTimer(min(r.AuditEvery, firstAudit))
	defer due.Stop()
	if r.AuditEvery <= 0 {
		due.Stop()
	}
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-r.auditing.ask:
			asked = true
		case <-due.C:
			due.Reset(r.AuditEvery)
		}
		select {
		case <-ctx.Done():
			return
		case r.auditing.slot <- struct{}{}:
		}
		r.audit(ctx, asked)
		<-r.auditing.slot
	}
}

// audit runs one audit. One that nobody asked for is left to the worker that cleans, so that many daemons on a table do
// not all audit it.
func (r *runner) audit(ctx context.Context, asked bool) {
	r.auditing.set(true, nil, "")
	audit, ours, err := r.auditOnce(ctx, asked)
	switch {
	case ctx.Err() != nil:
		r.auditing.set(false, nil, "the daemon is stopping")
	case err != nil:
		r.log.Warn("the audit came to no result", "error", err)
		r.auditing.set(false, nil, err.Error())
		if ours {
			r.auditing.vain()
		}
	case audit == nil:
		r.auditing.set(false, nil, "")
	default:
		for _, law := range audit.Laws {
			for _, b := range law.Breaches {
				r.log.Error("the books do not balance", "law", law.Name, "total", b.Total, "say", b.Say, "do", b.Do)
			}
		}
		r.auditing.set(false, audit, "")
	}
}

// auditOnce says besides whether the audit is this daemon's to do, as far as that is known.
func (r *runner) auditOnce(ctx context.Context, asked bool) (result *core.Audit, ours bool, _ error) {
	opening, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	source, err := r.OpenToAudit(opening, r.plain)
	if err != nil {
		return nil, asked, err
	}
	defer func() {
		if err := source.Close(); err != nil {
			r.log.Warn("closing the audit's source failed", "error", err)
		}
	}()
	if !asked {
		leases, err := source.Leases(opening)
		if err != nil {
			return nil, false, fmt.Errorf("look at the leases: %w", err)
		}
		if len(leases) == 0 || leases[0].Owner != r.owner {
			r.auditing.forget()
			return nil, false, nil
		}
	}
	audit, err := source.Audit(ctx, r.Audit)
	if err != nil {
		return nil, true, err
	}
	return &audit, true, nil
}

// set notes where audits are. A result stays until there is another one.
func (a *auditing) set(running bool, result *core.Audit, failed string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running, a.failed = running, failed
	if result != nil {
		a.last, a.fruitless = result, false
	}
}

// vain notes that an audit of this daemon came to no result.
func (a *auditing) vain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fruitless = a.last == nil
}

// forget drops the last result: another worker audits this table now, and an old breach must not be an alarm for ever.
func (a *auditing) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last, a.fruitless, a.begun = nil, false, time.Now()
}

// without says that audits were tried in vain, and since when there is no result.
func (a *auditing) without() (fruitless bool, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fruitless, a.begun
}

// want asks for an audit unless one is running or wanted.
func (a *auditing) want() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running || len(a.ask) > 0 {
		return false
	}
	a.running = true
	a.ask <- struct{}{}
	return true
}

func (a *auditing) state() (last *core.Audit, running bool, failed string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.running || len(a.ask) > 0, a.failed
}

// audited is a connector with its audits.
type audited struct {
	connector string
	*auditing
}

func auditsOf(runners []*runner) []audited {
	list := make([]audited, len(runners))
	for i, r := range runners {
		list[i] = audited{r.Name, r.auditing}
	}
	return list
}

// auditAnswer is the answer to a question for audits.
type auditAnswer struct {
	Connector string     `json:"connector"`
	Running   bool       `json:"running"`
	Error     string     `json:"error,omitempty"` // of the last audit, when it came to no result
	Last      *AuditView `json:"last"`            // null before the first result
}

// noAudit is all that is said over HTTP of why there is no result: a database's error tells of hosts, users and tables.
const noAudit = "it came to no result: the daemon's log says why, and so does connectd audit"

// getAudit shows a connector's last audit.
func (s *server) getAudit(w http.ResponseWriter, r *http.Request) {
	a, err := s.auditOf(r.URL.Query().Get("connector"))
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	s.answer(w, a.answer(), nil)
}

// postAudit asks for an audit and does not wait for it.
func (s *server) postAudit(w http.ResponseWriter, r *http.Request) {
	if err := isJSON(r); err != nil {
		s.answer(w, nil, err)
		return
	}
	a, err := s.auditOf(r.URL.Query().Get("connector"))
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	if !a.want() {
		s.answer(w, nil, refuse(http.StatusConflict, "connector %s: an audit is running", a.connector))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	s.answer(w, a.answer(), nil)
}

func (a audited) answer() auditAnswer {
	last, running, failed := a.state()
	answer := auditAnswer{Connector: a.connector, Running: running}
	if failed != "" {
		answer.Error = noAudit
	}
	if last != nil {
		v := ViewAudit(a.connector, *last)
		answer.Last = &v
	}
	return answer
}

// auditOf finds a connector, which need not be named when there is one.
func (s *server) auditOf(name string) (audited, error) {
	all := s.audits()
	if name == "" && len(all) != 1 {
		return audited{}, refuse(http.StatusBadRequest, "say which connector: there are %d", len(all))
	}
	for _, a := range all {
		if name == "" || a.connector == name {
			return a, nil
		}
	}
	return audited{}, refuse(http.StatusNotFound, "there is no such connector")
}

// auditGauges are the metrics of the last audits.
type auditGauges struct {
	audits            func() []audited
	ok, findings, age *prometheus.Desc
}

func newAuditGauges(audits func() []audited) *auditGauges {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("connectd_audit_"+name, help, []string{"connector"}, nil)
	}
	return &auditGauges{
		audits:   audits,
		ok:       desc("ok", "1 when the books balanced in this daemon's last audit, 0 also when none came to a result; absent before the first."),
		findings: desc("findings", "Findings of this daemon's last audit."),
		age:      desc("age_seconds", "Age of this daemon's last audit that came to a result; when none did, of the daemon."),
	}
}

// Describe implements prometheus.Collector.
func (g *auditGauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.ok
	ch <- g.findings
	ch <- g.age
}

// Collect implements prometheus.Collector.
func (g *auditGauges) Collect(ch chan<- prometheus.Metric) {
	for _, a := range g.audits() {
		last, _, _ := a.state()
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, a.connector)
		}
		if last == nil {
			if fruitless, since := a.without(); fruitless {
				gauge(g.ok, 0)
				gauge(g.age, time.Since(since).Seconds())
			}
			continue
		}
		gauge(g.ok, number(last.OK()))
		gauge(g.findings, float64(last.Findings()))
		gauge(g.age, time.Since(last.At).Seconds())
	}
}
