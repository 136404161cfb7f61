package daemon

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/sqlite"
)

const evilID = "x\nvictim\x1b[2J\"?&/%"

// stopped is a server of one connector, whose table is a real one: three dead rows of key a and types t and u, of which
// r2 was sent, a held one of key b, a pending one, and a dead one of an odd id. dump writes the table down.
func stopped(t *testing.T, token string) (h http.Handler, dump func() string) {
	t.Helper()
	cfg := sqlite.Config{Path: filepath.Join(t.TempDir(), "shop.db"), Table: "outbox"}
	plan, err := sqlite.Plan(t.Context(), cfg, sqlite.InitOptions{})
	if err == nil {
		err = sqlite.Apply(t.Context(), cfg, plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+cfg.Path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	now := "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
	_, err = db.Exec(strings.ReplaceAll(`INSERT INTO outbox (id, aggregateid, type, payload, state, deliveries, last_error, created_at) VALUES
		('r1', 'a', 't', '{"n":1}', 'dead', 0, 'http_422: no', {now} - 7200000), ('r2', 'a', 'u', x'00ff', 'dead', 2, 'timeout', {now}), ('r3', 'b', 't', '', 'held', 1, 'uncertain', {now}),
		('r4', 'a', 't', '', 'dead', 0, 'http_422: no', {now}), ('r5', 'c', 't', '', 'pending', 0, NULL, {now}), (?, NULL, 'odd', '', 'dead', 0, NULL, {now})`, "{now}", now), evilID)
	if err != nil {
		t.Fatal(err)
	}
	source, err := sqlite.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	s := testServer(token)
	s.books = func() []bookkeeper {
		return []bookkeeper{{"orders", source, source, func([]core.ReceiptResult) {}}, {connector: "other"}}
	}
	return s.handler(), func() string { return dumped(t, source) }
}

func dumped(t *testing.T, source *sqlite.Source) string {
	t.Helper()
	rows, err := source.List(t.Context(), core.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, r := range rows {
		row, history, err := source.Show(t.Context(), r.ID)
		fmt.Fprintf(&text, "%+v %+v %v\n", row, history, err)
	}
	return text.String()
}

// ask sends a request, with a body if it is a POST, and reads the answer, which must be JSON.
func ask(t *testing.T, h http.Handler, method, path, text string, change func(*http.Request), into any) int {
	t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:8083"+path, strings.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if kind := w.Header().Get("Content-Type"); kind != "application/json" {
		t.Errorf("%s %.200s: the answer is of type %q", method, path, kind)
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		t.Errorf("%s %.200s: %v in %.300s", method, path, err, w.Body)
	}
	return w.Code
}

func TestRowsAreListedOverHTTP(t *testing.T) {
	h, _ := stopped(t, "")
	for query, want := range map[string]string{
		"": "r1 r2 r3 r4 r5 x", "&state=dead": "r1 r2 r4 x", "&state=held": "r3", "&key=a": "r1 r2 r4", "&type=u": "r2", "&key=a&type=t": "r1 r4",
		"&reason=http_422": "r1 r4", "&reason=HTTP": "", "&older=1h": "r1", "&newer=1h": "r2 r3 r4 r5 x", "&state=dead&reason=http&newer=1h": "r4",
		"&limit=2": "r1 r2 more 2", "&limit=2&after=2": "r3 r4 more 4", "&after=4&limit=2": "r5 x more 6", "&after=6&limit=2": "", "&state=&key=": "r1 r2 r3 r4 r5 x",
	} {
		var got struct {
			Connector string
			Rows      []rowwork.View
			More      bool
			After     int64
		}
		status := ask(t, h, "GET", "/api/v1/rows?connector=orders"+query, "", nil, &got)
		var all []string
		for _, row := range got.Rows {
			all = append(all, strings.Split(row.ID, "\n")[0])
		}
		if got.More {
			all = append(all, fmt.Sprint("more ", got.After))
		}
		if strings.Join(all, " ") != want || status != 200 || got.Connector != "orders" {
			t.Errorf("%s: %d %v, want %s", query, status, all, want)
		}
	}
}

func TestRowIsShownOverHTTP(t *testing.T) {
	h, _ := stopped(t, "")
	var row rowwork.View
	if status := ask(t, h, "GET", "/api/v1/rows/row?connector=orders&id=r2", "", nil, &row); status != 200 || *row.PayloadBase64 != "AP8=" || row.Deliveries != 2 || *row.Key != "a" {
		t.Errorf("%d %+v", status, row)
	}
	row = rowwork.View{}
	if status := ask(t, h, "GET", "/api/v1/rows/row?connector=orders&id="+url.QueryEscape(evilID), "", nil, &row); status != 200 || row.ID != evilID || row.Key != nil {
		t.Errorf("%d %+v", status, row)
	}
}

// TestRowsAreChangedOverHTTP: by ids, by a filter, all; who, from where and why is in the history.
func TestRowsAreChangedOverHTTP(t *testing.T) {
	for _, c := range []struct{ what, verb, body, want string }{
		{"ids, in order and once", "retry", `"ids":["r4","r1","r4","nobody","r3"]`, "nobody:no row r1:done r3:row r3 is held, not dead r4:done"},
		{"an id that is two lines", "skip", `"ids":["x\nvictim\u001b[2J\"?&/%"]`, "x:done"},
		{"a filter", "retry", `"filter":{"key":"a","reason":"http_422"}`, "r1:done r4:done"},
		{"a state", "skip", `"filter":{"state":"held"}`, "r3:done"},
		{"all", "skip", `"all":true`, "r1:done r2:done r3:done r4:done x:done"},
		{"all held ones", "release", `"all":true`, "r3:done"},
		{"a page", "retry", `"all":true,"limit":2`, "r1:done r2:done more 2"},
		{"the next page", "retry", `"all":true,"limit":2,"after":2`, "r4:done x:done"},
		{"none", "retry", `"filter":{"key":"z"}`, ""},
	} {
		h, dump := stopped(t, "")
		before := dump()
		for _, dry := range []bool{true, false} {
			var got rowsAnswer
			status := ask(t, h, "POST", "/api/v1/rows/"+c.verb, fmt.Sprintf(`{"connector":"orders",%s,"why":"fixed\nupstream","by":"console:ann","dry_run":%v}`, c.body, dry), nil, &got)
			want := c.want
			if dry {
				want = strings.ReplaceAll(want, ":done", ":")
			}
			if text := answered(got); text != want || status != 200 || got.DryRun != dry {
				t.Errorf("%s, dry %v: %d %s, want %s", c.what, dry, status, text, want)
			}
			if n := strings.Count(c.want, ":done"); got.Changed != n || got.Changed+got.Failed != len(got.Rows) {
				t.Errorf("%s, dry %v: %d changed, %d failed", c.what, dry, got.Changed, got.Failed)
			}
			if dry && dump() != before {
				t.Errorf("%s: a dry run has changed something", c.what)
			}
			for _, row := range got.Rows {
				if row.Done {
					noted(t, h, row.ID, c.verb)
				}
			}
		}
	}
}

// answered writes an answer down in short.
func answered(a rowsAnswer) string {
	var all []string
	for _, row := range a.Rows {
		text := strings.Split(row.ID, "\n")[0] + ":" + row.Error
		if row.Error = ""; row.Done {
			text += "done"
		}
		all = append(all, strings.TrimSuffix(text, " has this id"))
	}
	if a.More {
		all = append(all, fmt.Sprint("more ", a.After))
	}
	return strings.Join(all, " ")
}

// noted checks that a row's history says who did what, and why.
func noted(t *testing.T, h http.Handler, id, verb string) {
	t.Helper()
	var row rowwork.View
	ask(t, h, "GET", "/api/v1/rows/row?connector=orders&id="+url.QueryEscape(id), "", nil, &row)
	if len(row.History) != 1 || row.History[0].Code != verb || row.History[0].By != "api:console:ann@192.0.2.1" || row.History[0].Message != "fixed upstream" || row.History[0].At == "" {
		t.Errorf("%q: %+v", id, row.History)
	}
}

// TestRowIsEditedOverHTTP: byte for byte, and what it was stays to be seen.
func TestRowIsEditedOverHTTP(t *testing.T) {
	h, _ := stopped(t, "")
	for _, c := range []struct{ id, body, payload, base64, headers, old, warning string }{
		{"r1", `"payload":"{\"n\": 2}\n","headers":{"a": "b"}`, "{\"n\": 2}\n", "", `{"a": "b"}`, `{"n":1}`, ""},
		{"r2", `"payload_base64":"/wA="`, "", "/wA=", "", "AP8=", "earlier version"},
		{"r4", `"payload":""`, "", "", "", "", ""},
	} {
		var got rowsAnswer
		status := ask(t, h, "POST", "/api/v1/rows/retry", fmt.Sprintf(`{"connector":"orders","ids":[%q],%s,"why":"typo","by":"ann"}`, c.id, c.body), nil, &got)
		if status != 200 || got.Changed != 1 || !strings.Contains(got.Rows[0].Warning, c.warning) || (got.Rows[0].Warning == "") != (c.warning == "") {
			t.Errorf("%s: %d %+v", c.id, status, got)
		}
		var row rowwork.View
		ask(t, h, "GET", "/api/v1/rows/row?connector=orders&id="+c.id, "", nil, &row)
		text := func(content rowwork.Content) string {
			if content.PayloadBase64 != nil {
				return *content.PayloadBase64
			}
			return *content.Payload
		}
		if text(row.Content) != c.payload+c.base64 || len(row.Revisions) != 1 || text(row.Revisions[0].Content) != c.old || row.Revisions[0].Why != "typo" ||
			row.Revisions[0].By != "api:ann@192.0.2.1" || row.State != core.Pending || string(row.Headers) != strings.ReplaceAll(c.headers, " ", "") {
			t.Errorf("%s: %+v", c.id, row)
		}
	}
	var refused rowsAnswer
	ask(t, h, "POST", "/api/v1/rows/retry", `{"connector":"orders","ids":["r3"],"payload":"x"}`, nil, &refused)
	if answered(refused) != "r3:row r3 is held, not dead" {
		t.Errorf("%+v", refused)
	}
}

// TestRowsAreRefusedOverHTTP: whatever is wrong, the answer is an error in JSON, and nothing is changed.
func TestRowsAreRefusedOverHTTP(t *testing.T) {
	h, dump := stopped(t, "")
	before := dump()
	many := `"ids":["r1"` + strings.Repeat(`,"r1"`, rowsPage) + `]`
	foreign := func(r *http.Request) { r.Host = "evil.example" }
	plain := func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }
	for _, c := range []struct {
		what, path, body string
		change           func(*http.Request)
		want             int
	}{
		{"no JSON", "retry", `ids=r1`, nil, 400},
		{"two objects", "retry", `{"connector":"orders","ids":["r1"]}{}`, nil, 400},
		{"a field that is not known", "retry", `{"connector":"orders","ids":["r1"],"dryrun":true}`, nil, 400},
		{"no choice", "retry", `{"connector":"orders"}`, nil, 400},
		{"no ids", "retry", `{"connector":"orders","ids":[]}`, nil, 400},
		{"no filter", "retry", `{"connector":"orders","filter":{}}`, nil, 400},
		{"ids and all", "retry", `{"connector":"orders","ids":["r1"],"all":true}`, nil, 400},
		{"a filter and all", "retry", `{"connector":"orders","filter":{"key":"a"},"all":true}`, nil, 400},
		{"an empty key", "skip", `{"connector":"orders","filter":{"key":""}}`, nil, 400},
		{"an unknown filter", "skip", `{"connector":"orders","filter":{"keys":"a"}}`, nil, 400},
		{"a state the verb is not for", "retry", `{"connector":"orders","filter":{"state":"held"}}`, nil, 400},
		{"too large a limit", "retry", `{"connector":"orders","all":true,"limit":1001}`, nil, 400},
		{"a limit of ids", "retry", `{"connector":"orders","ids":["r1"],"limit":1}`, nil, 400},
		{"half a surrogate pair", "retry", `{"connector":"orders","ids":["\ud800"]}`, nil, 400},
		{"half a surrogate pair sent", "retry", `{"connector":"orders","ids":["r1"],"payload":"\uDC00"}`, nil, 400},
		{"bytes that are no text", "retry", "{\"connector\":\"orders\",\"ids\":[\"\xff\"]}", nil, 400},
		{"two payloads", "retry", `{"connector":"orders","ids":["r1"],"payload":"","payload_base64":""}`, nil, 400},
		{"a payload for two", "retry", `{"connector":"orders","ids":["r1","r2"],"payload":""}`, nil, 400},
		{"a payload for all", "retry", `{"connector":"orders","all":true,"payload":""}`, nil, 400},
		{"a payload skipped", "skip", `{"connector":"orders","ids":["r1"],"payload":""}`, nil, 400},
		{"no base64", "retry", `{"connector":"orders","ids":["r1"],"payload_base64":"*"}`, nil, 400},
		{"no connector", "retry", `{"ids":["r1"]}`, nil, 400},
		{"another connector", "retry", `{"connector":"nobody","ids":["r1"]}`, nil, 404},
		{"a connector that is not open", "retry", `{"connector":"other","ids":["r1"]}`, nil, 503},
		{"another verb", "delete", `{"connector":"orders","ids":["r1"]}`, nil, 404},
		{"too many", "retry", `{"connector":"orders",` + many + `}`, nil, 413},
		{"too large", "retry", `{"connector":"` + strings.Repeat("a", maxRowsBody) + `"}`, nil, 413},
		{"what a browser's form sends", "retry", `{"connector":"orders","ids":["r1"]}`, plain, 415},
		{"a foreign host", "retry", `{"connector":"orders","ids":["r1"]}`, foreign, 403},
	} {
		var got struct{ Error string }
		if status := ask(t, h, "POST", "/api/v1/rows/"+c.path, c.body, c.change, &got); status != c.want || got.Error == "" {
			t.Errorf("%s: %d %+v, want %d", c.what, status, got, c.want)
		}
	}
	for path, want := range map[string]int{
		"rows?connector=orders&limit=0": 400, "rows?connector=orders&limit=1001": 400, "rows?connector=orders&after=x": 400, "rows?connector=orders&state=ded": 400,
		"rows?connector=orders&older=5": 400, "rows?connector=orders&key=%00": 400, "rows?connector=orders&keys=a": 400, "rows": 400, "rows?connector=nobody": 404, "rows?connector=other": 503,
		"rows/row?connector=orders": 400, "rows/row?connector=orders&id=%ff": 400, "rows/row?connector=orders&id=nobody": 404, "rows/row?connector=orders&id=": 404, "rows/row?id=r1": 400,
		"rows/retry": 405, "nothing": 404,
	} {
		var got struct{ Error string }
		if status := ask(t, h, "GET", "/api/v1/"+path, "", nil, &got); status != want || got.Error == "" {
			t.Errorf("GET %s: %d %+v, want %d", path, status, got, want)
		}
	}
	if after := dump(); after != before {
		t.Errorf("changed from\n%s\nto\n%s", before, after)
	}
}

func TestRowsNeedTheToken(t *testing.T) {
	h, dump := stopped(t, "s3cret")
	before := dump()
	for path, method := range map[string]string{"rows?connector=orders": "GET", "rows/row?connector=orders&id=r1": "GET", "rows/retry": "POST", "rows/skip": "POST", "rows/release": "POST", "nothing": "GET"} {
		var got struct{ Error string }
		if status := ask(t, h, method, "/api/v1/"+path, `{"connector":"orders","all":true}`, nil, &got); status != 401 || got.Error == "" {
			t.Errorf("%s %s: %d %+v", method, path, status, got)
		}
	}
	if dump() != before {
		t.Error("changed without the token")
	}
	var got rowsAnswer
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer s3cret") }
	if status := ask(t, h, "POST", "/api/v1/rows/retry", `{"connector":"orders","all":true}`, bearer, &got); status != 200 || got.Changed != 4 {
		t.Errorf("%d %+v", status, got)
	}
}

// A caller cannot make a history that is long, has other lines, or says that it asks from elsewhere.
func TestCallersAreNamed(t *testing.T) {
	for _, c := range []struct{ name, remote, want string }{
		{"ann", "10.0.0.7:4711", "api:ann@10.0.0.7"},
		{"", "[::1]:4711", "api:unknown@::1"},
		{"root@10.0.0.1\n\x1b[2J", "10.0.0.7:1", "api:root@10.0.0.1  [2J@10.0.0.7"},
		{strings.Repeat("ä", maxByName), "10.0.0.7:1", "api:" + strings.Repeat("ä", maxByName/2) + "@10.0.0.7"},
	} {
		if got := caller(c.name, c.remote); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// gone is a table whose database does not answer.
type gone struct{ core.Operator }

var errGone = errors.New("dial tcp 10.0.0.1: password is hunter2")

func (gone) List(context.Context, core.Filter) ([]core.RowInfo, error) { return nil, errGone }
func (gone) Show(_ context.Context, id string) (core.RowInfo, []core.Attempt, error) {
	if id == "there" {
		return core.RowInfo{ID: id, Seq: 1, State: core.Dead}, nil, nil
	}
	return core.RowInfo{}, nil, errGone
}
func (gone) Revisions(context.Context, string) ([]core.Revision, error) { return nil, errGone }
func (gone) Retry(context.Context, core.Act) error                      { return errGone }
func (gone) Trace(context.Context, string) (core.Trace, error)          { return core.Trace{}, errGone }

// TestRowsWhileTheDatabaseIsAway: the answer says so, and nothing of what the database said.
func TestRowsWhileTheDatabaseIsAway(t *testing.T) {
	s := testServer("")
	s.books = func() []bookkeeper { return []bookkeeper{{connector: "orders", books: away{}, rows: gone{}}} }
	h := s.handler()
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "rows", "", 503},
		{"GET", "rows/row?id=r1", "", 503},
		{"GET", "rows/row?id=there", "", 200},
		{"POST", "rows/retry", `{"all":true}`, 503},
		{"POST", "rows/retry", `{"ids":["r1"]}`, 503},
		{"POST", "rows/retry", `{"ids":["there"]}`, 200},
	} {
		var got json.RawMessage
		status := ask(t, h, c.method, "/api/v1/"+c.path, c.body, nil, &got)
		if text := string(got); status != c.want || strings.Contains(text, "hunter2") || !strings.Contains(text, "error") {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, text)
		}
	}
}

// TestRowsThatAreDoneAreNotSentAgainOverHTTP, unless they are named.
func TestRowsThatAreDoneAreNotSentAgainOverHTTP(t *testing.T) {
	h, _ := stopped(t, "")
	var stored, answer map[string]any
	ask(t, h, "POST", "/api/v1/receipts", `{"connector":"orders","command_id":"r2","consumer":"billing","status":"done"}`, nil, &stored)
	for _, dry := range []string{"true", "false"} {
		if ask(t, h, "POST", "/api/v1/rows/retry", `{"connector":"orders","filter":{"type":"u"},"dry_run":`+dry+`}`, nil, &answer); answer["changed"] != 0.0 || answer["failed"] != 1.0 ||
			!strings.Contains(fmt.Sprint(answer["rows"]), `consumer "billing" has done it`) {
			t.Errorf("chosen: %v", answer)
		}
		if ask(t, h, "POST", "/api/v1/rows/retry", `{"connector":"orders","ids":["r2"],"dry_run":`+dry+`}`, nil, &answer); answer["changed"] != 1.0 ||
			!strings.Contains(fmt.Sprint(answer["rows"]), "sent again all the same") {
			t.Errorf("named: %v", answer)
		}
	}
	var row rowwork.View
	if ask(t, h, "GET", "/api/v1/rows/row?connector=orders&id=r2", "", nil, &row); len(row.Receipts) != 1 || row.Receipts[0].Status != "done" {
		t.Errorf("%+v", row)
	}
}
