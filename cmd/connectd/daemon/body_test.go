package daemon

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connectd/connectd/core"
)

// TestAShortBodyNeverTakesMuch: of a list only what is allowed is read and kept, whatever it is a list of.
func TestAShortBodyNeverTakesMuch(t *testing.T) {
	fill := func(head, one, tail string) string {
		return head + strings.Repeat(one+",", (maxReceiptsBody-1000)/(len(one)+1)) + one + tail
	}
	names := &strings.Builder{}
	for i := range 200_000 {
		fmt.Fprintf(names, `,"f%d":""`, i)
	}
	h, _ := booked("", "a")
	for what, c := range map[string]struct{ path, body string }{
		"receipts":  {"receipts", fill(`{"receipts":[`, `{}`, `]}`)},
		"ids":       {"rows/skip", fill(`{"ids":[`, `""`, `]}`)},
		"nulls":     {"rows/retry", fill(`{"ids":[`, `null`, `]}`)},
		"filter":    {"rows/retry", `{"filter":{"a":""` + names.String() + `}}`},
		"fields":    {"receipts", `{"a":""` + names.String() + `}`},
		"headers":   {"rows/retry", fill(`{"ids":["a"],"headers":{`, `"":0`, `}}`)},
		"no fields": {"receipts", fill(`{"receipts":{`, `"":0`, `}}`)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var got struct{ Error string }
		status := ask(t, h, http.MethodPost, "/api/v1/"+c.path, c.body, nil, &got)
		runtime.ReadMemStats(&after)
		if status != 413 && status != 400 || got.Error == "" {
			t.Errorf("%s: %d %s", what, status, got.Error)
		}
		limit := uint64(2 << 20)
		if what == "headers" {
			limit = 32 << 20 // one value, read whole
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > limit {
			t.Errorf("%s: a body of %d bytes took %d", what, len(c.body), took)
		}
	}
	full := `{"receipts":[` + strings.Repeat(`{"command_id":"a","status":"done"},`, core.MaxReceipts-1) + `{"command_id":"a","status":"done"}]}`
	if status, text := post(t, h, full, nil); status != 200 {
		t.Errorf("the most receipts: %d %.200s", status, text)
	}
}

// TestBodiesAreReadToTheLetter: nothing is replaced, taken twice, or taken for a field of another name, and an error says
// which field it is and nothing about Go.
func TestBodiesAreReadToTheLetter(t *testing.T) {
	h, table := booked("", "a")
	for _, c := range []struct{ path, body, say string }{
		{"receipts", `{"command_id":"\ud800","status":"done"}`, "command_id: "},
		{"receipts", `{"command_id":"a\\ufffd\udc00","status":"done"}`, "command_id: "},
		{"receipts", `{"command_id":"\ud83dA","status":"done"}`, "command_id: "},
		{"receipts", `{"receipts":[{"command_id":"a","status":"done","result_ref":"\ud800"}]}`, "receipts[0].result_ref: "},
		{"receipts", `{"receipts":[],"receipts":[{"command_id":"a","status":"done"}]}`, "receipts is there twice"},
		{"receipts", `{"command_id":"a","command_id":"b","status":"done"}`, "command_id is there twice"},
		{"receipts", `{"COMMAND_ID":"a","status":"done"}`, `"COMMAND_ID" is not a field; did you mean "command_id"?`},
		{"receipts", `{"receipts":[{"Command_id":"a","status":"done"}]}`, `"receipts[0].Command_id" is not a field`},
		{"receipts", `{"command_id":7,"status":"done"}`, "command_id must be text"},
		{"receipts", `{"receipts":{}}`, "receipts must be a list"},
		{"receipts", `{"receipts":["a"]}`, "receipts[0] must be an object"},
		{"receipts", `{"receipts":[null]}`, "receipts[0] must be an object"},
		{"receipts", `null`, "it must be an object"},
		{"receipts", `{"command_id":"a"`, "it is not JSON at byte 17"},
		{"receipts", `{"command_id" "a"}`, "it is not JSON at byte"},
		{"rows/retry", `{"all":true,"dry_run":true,"DRY_RUN":false}`, `"DRY_RUN" is not a field; did you mean "dry_run"?`},
		{"rows/retry", `{"all":true,"dry_run":true,"dry_run":false}`, "dry_run is there twice"},
		{"rows/retry", `{"filter":{"key":"a","key":"b"}}`, "filter.key is there twice"},
		{"rows/retry", `{"filter":["a"]}`, "filter must be an object"},
		{"rows/retry", `{"all":"yes"}`, "all must be true or false"},
		{"rows/retry", `{"all":true,"limit":1.5}`, "limit must be a whole number"},
		{"rows/retry", `{"ids":["a"],"payload":{}}`, "payload must be text"},
		{"rows/retry", `{"ids":["a"],"payload_base64":"*"}`, "payload_base64 must be base64"},
		{"rows/retry", `{"ids":["a"],"payload_base64":[104,105]}`, "payload_base64 must be base64"},
		{"rows/retry", `{"ids":["a"],"payload_base64":"aG\nk="}`, "payload_base64 must be base64"},
		{"rows/retry", `{"ids":["a",null]}`, "ids[1] must be text"},
		{"rows/retry", `{"ids":["a"],"headers":{"h":"\ud800"}}`, "headers: "},
		{"rows/skip", `{"all":true,"why":"\ud800"}`, "why: "},
	} {
		var got struct{ Error string }
		status := ask(t, h, http.MethodPost, "/api/v1/"+c.path, c.body, nil, &got)
		if status != 400 || !strings.Contains(got.Error, ": "+c.say) || strings.Contains(got.Error, "Go ") || strings.Contains(got.Error, "daemon.") {
			t.Errorf("%s: %d %s, want %s", c.body, status, got.Error, c.say)
		}
	}
	if list, err := table.Receipts(t.Context(), core.ReceiptFilter{}); err != nil || len(list) != 0 {
		t.Errorf("%v, %v are stored", list, err)
	}
	var done struct{ Failed int }
	if status := ask(t, h, http.MethodPost, "/api/v1/rows/retry", `{"ids":["b"],"filter":null,"headers":null,"payload_base64":null}`, nil, &done); status != 200 || done.Failed != 1 {
		t.Errorf("null is as if it was not there: %d, %+v", status, done)
	}
	if status, text := post(t, h, `{"command_id":"\ud83d\ude00 \\ud800 \ufffd","status":"done"}`, nil); status != 200 || !strings.Contains(text, "\U0001F600 \\\\ud800 \uFFFD") {
		t.Errorf("a pair: %d %s", status, text)
	}
}

// TestReceiptsOfAnyIDAreListed: what a POST stores a GET finds, and goes on behind it.
func TestReceiptsOfAnyIDAreListed(t *testing.T) {
	h, _ := booked("", "a")
	for _, query := range []string{"?command=a%0Ab", "?after=a%0A", "?after=a&after_consumer=%1b"} {
		if status, text := post(t, h, `{"command_id":"a\nb","consumer":"\u001b","status":"done"}`, nil); status != 200 {
			t.Fatalf("POST: %d %s", status, text)
		}
		r := get(t, h, "/api/v1/receipts"+query, nil)
		if text := body(t, r); r.StatusCode != 200 || !strings.Contains(text, `"a\nb"`) {
			t.Errorf("GET %s: %d %s", query, r.StatusCode, text)
		}
	}
}

// standing is a database that keeps calls until it is told to go on.
type standing struct {
	core.Books
	came chan struct{}
	goOn chan struct{}
}

func (s standing) SaveReceipts(ctx context.Context, list []core.Receipt) ([]core.ReceiptResult, error) {
	s.came <- struct{}{}
	<-s.goOn
	return nil, nil
}

func (s standing) Receipts(context.Context, core.ReceiptFilter) ([]core.Receipt, error) {
	s.came <- struct{}{}
	<-s.goOn
	return nil, nil
}

// TestFewLargeBodiesAtOnce: others wait, and not for ever; a small one goes on beside the large ones.
func TestFewLargeBodiesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		books := standing{came: make(chan struct{}), goOn: make(chan struct{})}
		s := testServer("")
		s.books = func() []bookkeeper {
			return []bookkeeper{{connector: "orders", books: books, received: func([]core.ReceiptResult) {}}}
		}
		h := s.handler()
		send := func(size int) chan *httptest.ResponseRecorder {
			answer := make(chan *httptest.ResponseRecorder, 1)
			one := `{"command_id":"a","status":"done"}`
			go func() {
				r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8083/api/v1/receipts", strings.NewReader(one+strings.Repeat(" ", size-len(one))))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				answer <- w
			}()
			return answer
		}
		var running []chan *httptest.ResponseRecorder
		large := maxReceiptsBody - 100
		for range maxBodies / maxReceiptsBody {
			running = append(running, send(large))
			<-books.came
		}
		running = append(running, send(100))
		<-books.came
		began := time.Now()
		w := <-send(large)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || time.Since(began) != bodyWait || !strings.Contains(w.Body.String(), `"error"`) {
			t.Errorf("one too many: %d %v %s after %v", w.Code, w.Header(), w.Body, time.Since(began))
		}
		patient := send(large)
		time.Sleep(bodyWait / 2)
		books.goOn <- struct{}{}
		<-books.came // the one that waited
		for range running {
			books.goOn <- struct{}{}
		}
		for _, answer := range append(running, patient) {
			if w := <-answer; w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
	})
}

// TestABodyThatDoesNotCome: the answer says so, and not which machines talk.
func TestABodyThatDoesNotCome(t *testing.T) {
	s := testServer("")
	s.bodyTimeout = 50 * time.Millisecond
	conn := dial(t, served(t, s), "POST /api/v1/receipts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := body(t, r); r.StatusCode != http.StatusRequestTimeout || strings.Contains(text, "127.0.0.1") {
		t.Errorf("%d %s", r.StatusCode, text)
	}
}

// TestAnErrorThatNobodyThoughtOfIsNotShown, and is no answer either.
func TestAnErrorThatNobodyThoughtOfIsNotShown(t *testing.T) {
	w := httptest.NewRecorder()
	testServer("").answer(w, map[string]int{"changed": 1}, errGone)
	if text := w.Body.String(); w.Code != http.StatusInternalServerError || strings.Contains(text, "hunter2") || !strings.Contains(text, `"error"`) {
		t.Errorf("%d %s", w.Code, text)
	}
}
