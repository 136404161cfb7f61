package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
)

// booked is a server of one connector whose table has rows of these ids.
func booked(token string, ids ...string) (http.Handler, *memory.Source) {
	table := memory.NewSource(1, time.Now)
	tx := table.Begin()
	for _, id := range ids {
		tx.Insert(memory.Row{ID: id})
	}
	tx.Commit()
	s := testServer(token)
	s.books = func() []bookkeeper { return []bookkeeper{{"orders", table, table, func([]core.ReceiptResult) {}}} }
	return s.handler(), table
}

// post sends a body and gives the status and the answer's text.
func post(t *testing.T, h http.Handler, text string, change func(*http.Request)) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8083/api/v1/receipts", strings.NewReader(text))
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, body(t, w.Result())
}

func TestReceiptsOverHTTP(t *testing.T) {
	h, _ := booked("", "a", "b")
	for _, c := range []struct{ body, want string }{
		{`{"command_id":"a","status":"done","consumer":"billing","result_ref":"inv-1"}`, "stored"},
		{`{"connector":"orders","command_id":"a","status":"done","consumer":"billing"}`, "repeated"},
		{`{"receipts":[{"command_id":"b","status":"failed"},{"command_id":"b","status":"done"},{"command_id":"zzz","status":"done"},{"command_id":"b","status":"well"}]}`, "stored stored unknown refused"},
		{`{"receipts":[]}`, ""},
	} {
		status, text := post(t, h, c.body, nil)
		var got struct {
			Connector string
			Receipts  []receiptAnswer
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusOK || got.Connector != "orders" {
			t.Fatalf("%s: %d %s %v", c.body, status, text, err)
		}
		var answers []string
		for _, r := range got.Receipts {
			answers = append(answers, r.Answer)
			if (r.Why == "") != (r.Answer == "stored" || r.Answer == "repeated") || r.Answer != "refused" && r.Receipt.At == nil {
				t.Errorf("%s: %+v", c.body, r)
			}
		}
		if strings.Join(answers, " ") != c.want {
			t.Errorf("%s: %s, want %s", c.body, answers, c.want)
		}
	}
	for query, want := range map[string]string{
		"": "a/billing/done/inv-1/there b//done//there zzz//done//unknown", "?command=b": "b//done//there", "?connector=orders&command=nobody": "",
		"?limit=1": "a/billing/done/inv-1/there", "?after=a&after_consumer=billing&limit=1": "b//done//there",
	} {
		r := get(t, h, "/api/v1/receipts"+query, nil)
		var got struct{ Receipts []storedJSON }
		if err := json.Unmarshal([]byte(body(t, r)), &got); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, j := range got.Receipts {
			all = append(all, strings.Join([]string{j.Command, j.Consumer, j.Status, j.ResultRef, j.Row}, "/"))
		}
		if strings.Join(all, " ") != want {
			t.Errorf("GET %s: %q, want %s", query, all, want)
		}
	}
}

func TestReceiptsAreRefusedOverHTTP(t *testing.T) {
	many := `{"receipts":[` + strings.Repeat(`{"command_id":"a","status":"done"},`, core.MaxReceipts) + `{"command_id":"a","status":"done"}]}`
	one := `{"command_id":"a","status":"done"}`
	for _, c := range []struct {
		what, body string
		change     func(*http.Request)
		want       int
	}{
		{"no JSON", "a", nil, 400},
		{"an array", "[" + one + "]", nil, 400},
		{"a field that is not known", `{"command_id":"a","status":"done","At":"2020-01-01T00:00:00Z"}`, nil, 400},
		{"two objects", one + one, nil, 400},
		{"one and several", `{"command_id":"a","receipts":[]}`, nil, 400},
		{"bytes that are no text", "{\"command_id\":\"\xff\",\"status\":\"done\"}", nil, 400},
		{"another connector", `{"connector":"nobody","command_id":"a","status":"done"}`, nil, 404},
		{"too many", many, nil, 413},
		{"too large", `{"command_id":"` + strings.Repeat("a", maxReceiptsBody) + `"}`, nil, 413},
		{"what a browser's form sends", one, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		{"a foreign host", one, func(r *http.Request) { r.Host = "evil.example" }, 403},
	} {
		h, table := booked("", "a")
		if status, text := post(t, h, c.body, c.change); status != c.want {
			t.Errorf("%s: %d %.200s, want %d", c.what, status, text, c.want)
		}
		if list, err := table.Receipts(t.Context(), core.ReceiptFilter{}); err != nil || len(list) != 0 {
			t.Errorf("%s: %v, %v are stored", c.what, list, err)
		}
	}
	for _, query := range []string{"?limit=0", "?limit=1001", "?limit=x", "?command=%00", "?after=%ff"} {
		h, _ := booked("", "a")
		if r := get(t, h, "/api/v1/receipts"+query, nil); r.StatusCode != 400 {
			t.Errorf("GET %s: %d", query, r.StatusCode)
		}
	}
}

// What is wrong with a body is said in the words of JSON.
func TestWhatIsWrongWithABodyIsSaid(t *testing.T) {
	h, _ := booked("", "a")
	for _, c := range []struct{ path, body, want string }{
		{"receipts", `[]`, "it must be an object"},
		{"receipts", `{"command_id":7,"status":"done"}`, "command_id must be text"},
		{"receipts", `{"receipts":{"command_id":"a"}}`, "receipts must be a list"},
		{"receipts", `{"receipts":[{"command_id":"a"},{"command_id":true}]}`, "receipts[1].command_id must be text"},
		{"receipts", `{"receipts":["a"]}`, "receipts[0] must be an object"},
		{"receipts", `{"command":"a"}`, `"command" is not a field; did you mean "command_id"?`},
		{"receipts", ``, "it is empty"},
		{"rows/retry", `{"all":"yes"}`, "all must be true or false"},
		{"rows/retry", `{"all":true,"limit":1.5}`, "limit must be a whole number"},
		{"rows/retry", `{"all":true,"limit":"5"}`, "limit must be a whole number"},
		{"rows/retry", `{"ids":[5]}`, "ids[0] must be text"},
		{"rows/retry", `{"ids":"a"}`, "ids must be a list"},
		{"rows/retry", `{"filter":[]}`, "filter must be an object"},
		{"rows/retry", `{"ids":["a"],"payload_base64":5}`, "payload_base64 must be base64"},
	} {
		status, text := post(t, h, c.body, func(r *http.Request) { r.URL.Path = "/api/v1/" + c.path })
		var got struct{ Error string }
		if err := json.Unmarshal([]byte(text), &got); err != nil || status != 400 || got.Error != "the body is not as it should be: "+c.want {
			t.Errorf("%s %s: %d %s, want %s", c.path, c.body, status, text, c.want)
		}
		for _, word := range []string{"Go ", "daemon.", "json:", "struct"} {
			if strings.Contains(text, word) {
				t.Errorf("%s: %q is no word for people: %s", c.body, word, text)
			}
		}
	}
}

func TestAParameterThatIsNotKnownIsRefused(t *testing.T) {
	h, _ := booked("", "a")
	for _, path := range []string{"GET receipts", "GET rows", "GET rows/row", "GET audit", "POST audit", "POST receipts", "POST rows/retry", "POST rows/skip", "POST rows/release"} {
		method, path, _ := strings.Cut(path, " ")
		for query, want := range map[string]string{"limt=2": `no parameter here is named \"limt\"`, "connector=orders&a%zz": "the parameters cannot be read", "connector=orders;limit=2": "the parameters cannot be read", "connector=a&connector=b": "connector"} {
			r := httptest.NewRequest(method, "http://127.0.0.1:8083/api/v1/"+path+"?"+query, strings.NewReader(`{"command_id":"a","status":"done","ids":["a"]}`))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if text := body(t, w.Result()); w.Code != 400 || !strings.Contains(text, want) {
				t.Errorf("%s %s?%s: %d %s", method, path, query, w.Code, text)
			}
		}
	}
}

func TestPagesOfReceiptsSayWhetherThereAreMore(t *testing.T) {
	h, _ := booked("", "a")
	post(t, h, `{"receipts":[{"command_id":"a","status":"done"},{"command_id":"b","status":"done"}]}`, nil)
	for query, want := range map[string]bool{"?limit=1": true, "?limit=3": false, "?limit=1&after=b": false, "": false} {
		var got map[string]any
		if err := json.Unmarshal([]byte(body(t, get(t, h, "/api/v1/receipts"+query, nil))), &got); err != nil || got["more"] != want {
			t.Errorf("%q: %v, %v", query, got, err)
		}
	}
}

func TestReceiptsNeedTheToken(t *testing.T) {
	h, _ := booked("s3cret", "a")
	one := `{"command_id":"a","status":"done"}`
	if status, _ := post(t, h, one, nil); status != http.StatusUnauthorized {
		t.Errorf("POST without the token: %d", status)
	}
	if r := get(t, h, "/api/v1/receipts", nil); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("GET without the token: %d", r.StatusCode)
	}
	if status, _ := post(t, h, one, func(r *http.Request) { r.Header.Set("Authorization", "Bearer s3cret") }); status != http.StatusOK {
		t.Errorf("POST with the token: %d", status)
	}
}

// away is a database that does not answer.
type away struct{ core.Books }

func (away) SaveReceipts(context.Context, []core.Receipt) ([]core.ReceiptResult, error) {
	return nil, errors.New("dial tcp 10.0.0.1: password is hunter2")
}

func (away) Receipts(context.Context, core.ReceiptFilter) ([]core.Receipt, error) {
	return nil, errors.New("dial tcp 10.0.0.1: password is hunter2")
}

func TestReceiptsWhileTheDatabaseIsAway(t *testing.T) {
	for what, books := range map[string]core.Books{"not open": nil, "failing": away{}} {
		s := testServer("")
		s.books = func() []bookkeeper {
			return []bookkeeper{{connector: "orders", books: books}, {connector: "other", books: books}}
		}
		status, text := post(t, s.handler(), `{"connector":"orders","command_id":"a","status":"done"}`, nil)
		if status != http.StatusServiceUnavailable || strings.Contains(text, "hunter2") {
			t.Errorf("%s: POST: %d %s", what, status, text)
		}
		r := get(t, s.handler(), "/api/v1/receipts?connector=orders", nil)
		if text := body(t, r); r.StatusCode != http.StatusServiceUnavailable || strings.Contains(text, "hunter2") {
			t.Errorf("%s: GET: %d %s", what, r.StatusCode, text)
		}
		if status, _ := post(t, s.handler(), `{"command_id":"a","status":"done"}`, nil); status != http.StatusBadRequest {
			t.Errorf("%s: without saying which of two: %d", what, status)
		}
	}
}

func TestReceiptsAreCounted(t *testing.T) {
	m := newMetrics("", "")
	m.observe("orders", newMeter(time.Now)).received([]core.ReceiptResult{
		{Answer: core.ReceiptStored, Receipt: core.Receipt{Status: core.ReceiptDone}}, {Answer: core.ReceiptRefused, Receipt: core.Receipt{Status: "<anything>"}},
	})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if f.GetName() != "connectd_receipts_total" {
			continue
		}
		for _, metric := range f.GetMetric() {
			line := ""
			for _, l := range metric.GetLabel() {
				line += l.GetValue() + " "
			}
			got = append(got, fmt.Sprint(line, metric.GetCounter().GetValue()))
		}
	}
	if want := "refused orders other 1, stored orders done 1, stored orders failed 0"; strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
}
