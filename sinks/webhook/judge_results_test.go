package webhook

import (
	"net/http"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
)

// TestPerRowResults reads {id, status} of each row, wherever the setting says.
func TestPerRowResults(t *testing.T) {
	const unknown = "retryable unknown"
	for name, c := range map[string]struct {
		pointer, body string
		want          [3]string
	}{
		"all":       {"/results", `{"results":[{"id":"c-0","status":200},{"id":"c-1","status":201},{"id":"c-2","status":204}]}`, [3]string{"delivered", "delivered", "delivered"}},
		"any order": {"/results", `{"results":[{"id":"c-2","status":422},{"id":"c-0","status":500},{"id":"c-1","status":200}]}`, [3]string{"retryable", "delivered", "permanent"}},
		"the whole": {"", `[{"id":"c-0","status":"200"},{"id":"c-1","status":"429"},{"id":"c-2","status":401}]`, [3]string{"delivered", "throttled", "retryable"}},
		"deep":      {"/a~1b/1", `{"a/b":[0,[{"id":"c-0","status":200}]]}`, [3]string{"delivered", unknown, unknown}},
		"missing":   {"/results", `{"results":[{"id":"c-1","status":200}]}`, [3]string{unknown, "delivered", unknown}},
		"twice":     {"", `[{"id":"c-0","status":200},{"id":"c-0","status":422},{"id":"c-1","status":422},{"id":"c-1","status":200},{"id":"c-2","status":207}]`, [3]string{"permanent", "permanent", unknown}},
		"strangers": {"", `[{"id":"c-9","status":200},{"id":7,"status":200},{"status":200},{"id":"c-0"},{"id":"c-0","status":"ok"},{"id":"c-0","status":0},3,null]`, [3]string{unknown, unknown, unknown}},
		"no list":   {"/results", `{"results":{}}`, [3]string{}},
		"elsewhere": {"/results", `{"result":[]}`, [3]string{}},
		"no JSON":   {"/results", `OK`, [3]string{}},
		"nothing":   {"/results", ``, [3]string{}},
		"torn":      {"/results", `{"results":[{"id":"c-0","status":200}`, [3]string{}},
	} {
		for _, status := range []int{200, 207} {
			j := judging(t, `,"batch":{"per_row_results":"`+c.pointer+`"}`)
			v := j.answer(messageOf(3), status, http.Header{}, []byte(c.body))
			if c.want == [3]string{} {
				if meant(v) != unknown || v.perRecord != nil || v.outcome.Code != "no_result" {
					t.Errorf("%s: %+v", name, v)
				}
				continue
			}
			for i, want := range c.want {
				if got := meant(verdict{outcome: v.perRecord[i]}); got != want {
					t.Errorf("%s: row %d is %q, want %q", name, i, got, want)
				}
				if o := v.perRecord[i]; o.Kind != core.Delivered && (o.Message == "" || o.Scope == core.ScopeSink || o.Kind == core.Throttled && o.Scope != core.ScopeRecord) {
					t.Errorf("%s: row %d: %+v", name, i, o)
				}
			}
		}
	}
}

// TestPerRowResultsOfOtherAnswers are looked at only where an answer is a success.
func TestPerRowResultsOfOtherAnswers(t *testing.T) {
	j := judging(t, `,"batch":{"per_row_results":""}`)
	const body = `[{"id":"c-0","status":200}]`
	for status, want := range map[int]string{204: "delivered", 500: "retryable trouble", 413: "permanent split", 302: "retryable endpoint"} {
		if v := j.answer(messageOf(2), status, http.Header{}, []byte(body)); meant(v) != want || v.perRecord != nil {
			t.Errorf("%d: %q %+v", status, meant(v), v)
		}
	}
	if j.capture() < 1<<20 || judging(t, "").capture() > core.MaxErrorText+margin {
		t.Error("the judge wants too little or too much of a body")
	}
	if v := judging(t, `,"batch":{}`).answer(messageOf(2), 207, http.Header{}, []byte(body)); meant(v) != "retryable unknown" ||
		!strings.Contains(v.outcome.Message, "per_row_results") {
		t.Errorf("207 without per_row_results: %+v", v)
	}
}

// FuzzPerRowResults holds that no answer of a receiver does more than be judged.
func FuzzPerRowResults(f *testing.F) {
	f.Add([]byte(`{"results":[{"id":"c-0","status":200}]}`))
	f.Add([]byte(`{"results":[{"id":{},"status":1e3},{"id":"c-1","status":-1}]}`))
	j := judging(f, `,"batch":{"per_row_results":"/results"}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		v := j.answer(messageOf(2), 200, http.Header{}, body)
		if v.outcome.Kind != core.Retryable || v.perRecord != nil && len(v.perRecord) != 2 {
			t.Fatalf("%q: %+v", body, v)
		}
	})
}
