package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// cleaned is how many rows the ledger counts.
func (s *shop) cleaned() (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(`SELECT coalesce(sum(count), 0) FROM connectd_ledger`).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// conserved wants every row that was inserted to be there or to be counted as cleaned, in one snapshot.
func (s *shop) conserved() {
	s.t.Helper()
	var there, cleaned int
	if err := s.db.QueryRow(`SELECT (SELECT count(*) FROM outbox), (SELECT coalesce(sum(count), 0) FROM connectd_ledger)`).Scan(&there, &cleaned); err != nil {
		s.t.Fatal(err)
	}
	if there+cleaned != s.n {
		s.t.Errorf("%d rows are there and %d were cleaned, of %d", there, cleaned, s.n)
	}
}

// A daemon that is killed while it cleans, at any moment, loses no row and counts each once; no row goes that was not sent
// (https://github.com/MassTransit/MassTransit/issues/6145).
func TestKill9WhileCleaning(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, `daemon: {http: 127.0.0.1:0}
connectors:
  orders:
    source: {plugin: sqlite, path: ./shop.db}
    sink: {plugin: file, path: ./out.jsonl}
    delivery: {lease: 1s, batch: {max_records: 20}}
    retention: {published: 1ms}
`)
	s := openShop(t, dir)
	rnd := rand.New(rand.NewPCG(1, rand.Uint64()))
	for range 5 {
		s.insert(400, 20)
		d := startDaemon(t, dir)
		upTo := s.cleaned() + 1 + rnd.IntN(350)
		d.eventually("some rows to be cleaned", func() (bool, string) {
			n := s.cleaned()
			return n >= upTo, fmt.Sprint(n, " of ", upTo)
		})
		d.signal(syscall.SIGKILL)
		d.wait()
		s.conserved()
	}
	d := startDaemon(t, dir)
	d.eventually("all rows to be cleaned", func() (bool, string) {
		n := s.cleaned()
		return n == s.n, fmt.Sprint(n, " of ", s.n)
	})
	s.conserved()
	audit(t, dir, s.n)
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// of is the one value of a query.
func (s *shop) of(query string) (value string) {
	s.t.Helper()
	if err := s.db.QueryRow(query).Scan(&value); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return value
}

// Rows do not stay for ever when nobody has said for how long: they go after a day, and `check` and the schema say so
// (https://github.com/JasperFx/wolverine/issues/689).
func TestRowsGoAfterADayByDefault(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, `connectors:
  orders:
    source: {plugin: sqlite, path: ./shop.db}
    sink: {plugin: file, path: ./out.jsonl}
`)
	s := openShop(t, dir)
	s.insert(5, 1)
	d := startDaemon(t, dir)
	s.published(5)
	d.signal(syscall.SIGTERM)
	d.wait()
	s.exec(`UPDATE outbox SET published_at = published_at - 1000 * 3600 * iif(seq <= 3, 25, 23)`)
	d = startDaemon(t, dir)
	d.eventually("the old rows go", func() (bool, string) {
		n := s.cleaned()
		return n == 3, fmt.Sprint(n)
	})
	s.conserved()
	if left := s.of(`SELECT group_concat(seq) FROM outbox`); left != "4,5" {
		t.Errorf("the rows %s are left", left)
	}
	connectd(t, dir, "schema").want(t, 0, `"default": "24h"`)
}

// Where a receipt is required a row stays, whatever its retention, until its receipt has come.
func TestAReceiptLetsARowGo(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, `daemon: {http: 127.0.0.1:0}
connectors:
  orders:
    source: {plugin: sqlite, path: ./shop.db}
    sink: {plugin: file, path: ./out.jsonl}
    retention: {published: 0s, require_receipt: true}
`)
	s := openShop(t, dir)
	s.insert(3, 3)
	d := startDaemon(t, dir)
	s.published(3)
	text := strings.NewReader(`{"receipts": [{"command_id": "id-000001", "status": "done"}, {"command_id": "id-000002", "status": "failed"}, {"command_id": "nobody", "status": "done"}]}`)
	answer, err := http.Post(d.url()+"/api/v1/receipts", "application/json", text)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || strings.Count(string(body), `"answer":"stored"`) != 2 || strings.Count(string(body), `"answer":"unknown"`) != 1 {
		t.Fatalf("%s: %s, %v", answer.Status, body, err)
	}
	s.exec(`INSERT INTO connectd_receipt (command_id, consumer) VALUES ('id-000003', 'by SQL')`)
	d.eventually("two rows to be cleaned", func() (bool, string) {
		n := s.cleaned()
		return n == 2, fmt.Sprint(n)
	})
	s.conserved()
	var left string
	if err := s.db.QueryRow(`SELECT group_concat(id) FROM outbox`).Scan(&left); err != nil || left != "id-000002" {
		t.Errorf("%q is left, %v", left, err)
	}
	_, body2 := d.get("/api/v1/receipts?connector=orders&command=id-000001")
	var got struct {
		Receipts []struct{ Row, Status string }
	}
	if err := json.Unmarshal([]byte(body2), &got); err != nil || len(got.Receipts) != 1 || got.Receipts[0].Row != "cleaned" || got.Receipts[0].Status != "done" {
		t.Errorf("%s, %v", body2, err)
	}
	if _, metrics := d.get("/metrics"); !strings.Contains(metrics, `connectd_cleaned_rows_total{connector="orders",state="published"} 2`) {
		t.Error("the metrics do not count the rows")
	}
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
