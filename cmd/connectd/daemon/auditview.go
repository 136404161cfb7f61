package daemon

import (
	"time"

	"github.com/connectd/connectd/core"
)

// AuditView is an audit in JSON, from the command line and over HTTP.
type AuditView struct {
	Connector string     `json:"connector"`
	OK        bool       `json:"ok"`
	At        *time.Time `json:"at,omitempty"`
	TookMS    int64      `json:"took_ms"`
	Laws      []LawView  `json:"laws"`
	Error     string     `json:"error,omitempty"` // why there was no audit
}

// LawView is a law in JSON.
type LawView struct {
	Law      string           `json:"law"`
	OK       bool             `json:"ok"`
	Checked  bool             `json:"checked"`
	Say      string           `json:"say"`
	Figures  map[string]int64 `json:"figures"`
	Findings []BreachView     `json:"findings"`
}

// BreachView is a breach of a law in JSON.
type BreachView struct {
	Total int64    `json:"total"`
	IDs   []string `json:"ids"`
	Say   string   `json:"say"`
	Do    string   `json:"do"`
}

// ViewAudit writes an audit for JSON.
func ViewAudit(connector string, a core.Audit) AuditView {
	at := a.At.UTC()
	v := AuditView{Connector: connector, OK: a.OK(), At: &at, TookMS: a.Took.Milliseconds(), Laws: []LawView{}}
	for _, law := range a.Laws {
		l := LawView{Law: law.Name, OK: len(law.Breaches) == 0, Checked: law.Checked, Say: law.Say, Figures: map[string]int64{}, Findings: []BreachView{}}
		for _, f := range law.Figures {
			l.Figures[f.Name] = f.Count
		}
		for _, b := range law.Breaches {
			l.Findings = append(l.Findings, BreachView{b.Total, append([]string{}, b.IDs...), b.Say, b.Do})
		}
		v.Laws = append(v.Laws, l)
	}
	return v
}
