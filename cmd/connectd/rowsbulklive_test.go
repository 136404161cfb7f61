package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
)

// TestBulkRetryBesideARunningDaemon: the dead rows of one key are sent in the order in which they were written, while the
// daemon sends others.
func TestBulkRetryBesideARunningDaemon(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	d := startDaemon(t, dir)
	d.ready()
	s.exec("CREATE TRIGGER spoil AFTER INSERT ON outbox WHEN NEW.aggregateid IN ('key-1', 'key-2') BEGIN UPDATE outbox SET type = 'refuse' WHERE seq = NEW.seq; END")
	s.insert(40, 4)
	d.eventually("those of two keys are dead", func() (bool, string) { return s.count("dead") == 20, "" })
	s.exec("DROP TRIGGER spoil; UPDATE outbox SET type = 'mended' WHERE state = 'dead'")
	r := connectdWith(t, dir, "", map[string]string{"USER": "eve"}, "rows", "retry", "--key", "key-1", "--why", "mended")
	r.want(t, 0, "10 rows retried")
	s.insert(40, 4)
	s.published(70)
	// With on_dead: continue the rows behind them had gone on, and those that came later need not wait.
	var got []string
	for _, id := range strings.Fields(ids(t, dir, "key-1")) {
		if n := strings.TrimLeft(id, "id-0"); len(n) == 1 || n <= "40" {
			got = append(got, n)
		}
	}
	if want := "1 5 9 13 17 21 25 29 33 37"; strings.Join(got, " ") != want {
		t.Errorf("of the retried key came %v, want %s", got, want)
	}
	if n := s.count("dead"); n != 10 {
		t.Errorf("%d rows of the other key are dead, want 10", n)
	}
	noted(t, dir, "id-000037", "retry")
}

// TestAllAreGivenBackInTheirOrder: also to a daemon that has read some of them again already, and nothing behind the others.
func TestAllAreGivenBackInTheirOrder(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	s.insert(60, 3)
	s.exec("UPDATE outbox SET state = 'dead', deliveries = 1")
	startDaemon(t, dir).ready()
	connectd(t, dir, "rows", "retry", "--key", "key-1").want(t, 0, "20 rows retried")
	s.published(20)
	connectd(t, dir, "rows", "retry", "--all").want(t, 0, "40 rows retried")
	s.published(60)
	for key := range 3 {
		var seqs []int
		for _, id := range strings.Fields(ids(t, dir, fmt.Sprint("key-", key))) {
			n, err := strconv.Atoi(strings.TrimPrefix(id, "id-"))
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, n)
		}
		if len(seqs) != 20 || !slices.IsSorted(seqs) {
			t.Errorf("key-%d: %v", key, seqs)
		}
	}
}

// TestEditedRowIsDelivered with its new payload and headers and the same id, by the command line and over HTTP, while the
// daemon runs; what it was is shown.
func TestEditedRowIsDelivered(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, strings.Replace(quickstart, "lease: 2s", "lease: 2s, on_dead: block", 1))
	s := openShop(t, dir)
	d := startDaemon(t, dir)
	d.ready()
	s.exec(`INSERT INTO outbox (id, aggregateid, payload, headers) VALUES ('one', 'a', '{"n":1}', '["bad"]'), ('two', 'a', '{"n":2}', NULL), ('three', 'b', '{"n":3}', '["bad"]')`)
	d.eventually("two are dead", func() (bool, string) { return s.count("dead") == 2, "" })
	write(t, dir, "payload", `{"n":10}`)
	connectdWith(t, dir, `{"trip":"7"}`, map[string]string{"USER": "eve"}, "rows", "retry", "one", "--payload", dir+"/payload", "--headers", "-", "--why", "headers were a list").want(t, 0, "retried one")
	var answer struct {
		Changed int
		Rows    []rowwork.Changed
	}
	body := `{"ids": ["three"], "payload": "{\"n\":30}", "headers": {"trip": "8"}, "by": "ann", "why": "headers were a list"}`
	if status := d.post(t, "/api/v1/rows/retry", body, &answer); status != 200 || answer.Changed != 1 {
		t.Fatalf("%d %+v", status, answer)
	}
	s.published(3)
	var got []string
	for _, a := range arrivals(t, dir) {
		got = append(got, a.ID+" "+string(a.Payload))
	}
	if len(got) != 3 || !inOrder(got, `one {"n":10}`, `two {"n":2}`) || !inOrder(got, `three {"n":30}`) {
		t.Errorf("%q", got)
	}
	connectd(t, dir, "rows", "show", "one").want(t, 0, "published", "edit  headers were a list", "edited by cli:eve@", `["bad"]`, `{"n":1}`)
	var row rowwork.View
	if _, text := d.get("/api/v1/rows/row?id=three"); json.Unmarshal([]byte(text), &row) != nil || len(row.Revisions) != 1 || *row.Revisions[0].Payload != `{"n":3}` ||
		!strings.HasPrefix(row.Revisions[0].By, "api:ann@127.0.0.1") || row.State != "published" {
		t.Errorf("%+v", row)
	}
}

// inOrder says that the list has these, one after the other, with others in between.
func inOrder(list []string, want ...string) bool {
	for _, text := range list {
		if len(want) > 0 && text == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

// post sends the daemon a body and reads the answer.
func (d *daemonProcess) post(t *testing.T, path, body string, into any) int {
	t.Helper()
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Post(d.url()+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v in %.500s", path, err, text)
	}
	return r.StatusCode
}

// TestBulkOverHTTPGoesOn: a caller that follows the answers gets through all rows, in order, while the daemon sends them.
func TestBulkOverHTTPGoesOn(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, ", on_dead: block")
	s.insert(30, 1)
	s.exec("UPDATE outbox SET state = 'dead'")
	d := startDaemon(t, dir)
	d.ready()
	after, calls := int64(0), 0
	for more := true; more; calls++ {
		var answer struct {
			More    bool
			After   int64
			Changed int
		}
		if status := d.post(t, "/api/v1/rows/retry", fmt.Sprintf(`{"all": true, "limit": 7, "after": %d}`, after), &answer); status != 200 || answer.Changed == 0 || calls > 10 {
			t.Fatalf("%d %+v", status, answer)
		}
		more, after = answer.More, answer.After
	}
	s.published(30)
	if calls != 5 || audit(t, dir, 30) != 0 {
		t.Errorf("%d calls", calls)
	}
	var list struct{ Rows []rowwork.View }
	_, text := d.get("/api/v1/rows?limit=1000&" + url.Values{"state": {"published"}, "key": {"key-0"}}.Encode())
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Rows) != 30 {
		t.Errorf("%v: %d rows", err, len(list.Rows))
	}
}
