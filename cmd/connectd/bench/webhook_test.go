//go:build linux

package bench

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	webhookConcurrency = 64
	webhookDelay       = 50 * time.Millisecond
	webhookSecret      = "whsec_Y29ubmVjdGQtdGVzdC1zZWNyZXQtMzItYnl0ZXMhIQ=="
	measured           = 5 * time.Second
)

// benchmarkWebhook sends rows as signed webhooks, one request each, to a receiver in a process of its own.
func benchmarkWebhook(b *testing.B, p programs, r *report) {
	fast, slow := startReceiver(b, p, 1, 0), startReceiver(b, p, 1, webhookDelay)
	many := startReceiver(b, p, 8, 20*time.Millisecond)
	for b.Loop() {
		client := bareClient(b, fast.url())
		for _, c := range []struct {
			name, delivery string
			want           goal
		}{
			{"a record a call", "", goal{}},
			{"500 records a call", "batch: {max_records: 500}, ", atLeast(0.7)},
		} {
			s := webhookSetup(b, p, fast.url(), c.delivery)
			rate := publishRate(b, s, measured, "")
			r.add("webhook / bare net/http client", c.name, "", c.want, rate/client)
			r.add("  rate", c.name, "rows/s", goal{}, rate)
			r.add("  the bare client's", c.name, "requests/s", goal{}, client)
		}
		s := webhookSetup(b, p, slow.url(), "")
		rate := publishRate(b, s, measured, "")
		most := webhookConcurrency / webhookDelay.Seconds()
		r.add("webhook, 50 ms latency, 64 at once / 64 ÷ 50 ms", "", "", atLeast(0.9), rate/most)
		r.add("  rate", "50 ms", "rows/s", goal{}, rate)

		alone := manyRate(b, p, many, false)
		beside := manyRate(b, p, many, true)
		r.add("webhook, eight endpoints beside one that hangs / without it", "", "", atLeast(0.95), beside/alone)
		r.add("  rate without it", "hang", "rows/s", goal{}, alone)
	}
}

// webhookSetup writes the configuration of a signed webhook, with 64 at once and a backlog.
func webhookSetup(b *testing.B, p programs, url, delivery string) setup {
	s := newSetup(b, p, fmt.Sprintf("{plugin: webhook, url: %q, signing: {secrets: [{value: %q}]}, concurrency: %d}", url, webhookSecret, webhookConcurrency),
		fmt.Sprintf("delivery: {%sin_flight: %d}", delivery, webhookConcurrency))
	s.init(b)
	fill(b, s.database())
	return s
}

// manyRate is the rate of eight endpoints, to which rows go in turn, with or without a ninth that never answers, over half
// a minute from the start: the time in which the sink has to find out is in it.
func manyRate(b *testing.B, p programs, to receiver, hanging bool) float64 {
	sink := fmt.Sprintf(`{plugin: webhook, url: "http://{route}:%d/", signing: {secrets: [{value: %q}]}, concurrency: %d, ssrf: {allow_cidrs: ["127.0.0.0/8"], allow_ports: [%d]}}`,
		to.port, webhookSecret, webhookConcurrency, to.port)
	s := newSetup(b, p, sink, "")
	s.init(b)
	fill(b, s.database())
	db := openDatabase(b, s.database())
	defer db.Close()
	hosts := make([]string, len(to.hosts))
	for i, host := range to.hosts {
		hosts[i] = fmt.Sprintf("WHEN %d THEN '%s'", i, host)
	}
	// Every ninth row goes to the endpoint that hangs, with keys of its own.
	spread := fmt.Sprintf("CASE WHEN seq %% 9 = 8 THEN '%s' ELSE CASE (seq %% 9) %s END END", to.hanging, strings.Join(hosts, " "))
	if _, err := db.Exec("UPDATE outbox SET aggregatetype = " + spread + ", aggregateid = aggregateid || '-' || (seq % 9)"); err != nil {
		b.Fatal(err)
	}
	if !hanging {
		if _, err := db.Exec("DELETE FROM outbox WHERE seq % 9 = 8"); err != nil {
			b.Fatal(err)
		}
	}
	return publishRate(b, s, 30*time.Second, fmt.Sprintf("AND aggregatetype <> '%s'", to.hanging))
}

// publishRate runs a daemon for so long and returns how many rows a second it published, from the first on.
func publishRate(b *testing.B, s setup, long time.Duration, which string) float64 {
	db := openDatabase(b, s.database())
	defer db.Close()
	d := s.run(b)
	d.await(connectorRuns, 0)
	first := published(b, db, which)
	until(b, "the first row is published", time.Millisecond, func() bool {
		first = published(b, db, which)
		return first > 0
	})
	began := time.Now()
	time.Sleep(long)
	last := published(b, db, which)
	took := time.Since(began)
	if last >= backlogRows*8/9 {
		b.Fatalf("the backlog is too small for %v", long)
	}
	_ = d.cmd.Process.Kill()
	<-d.ended
	return float64(last-first) / took.Seconds()
}

func published(b *testing.B, db *sql.DB, which string) (n int) {
	if err := db.QueryRow("SELECT count(*) FROM outbox WHERE state = 'published' " + which).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// bareClient is the rate at which a program with nothing else to do posts the same bodies, signed the same way, to the
// same receiver, as many at once.
func bareClient(b *testing.B, url string) float64 {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(webhookSecret, "whsec_"))
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: webhookConcurrency}}
	defer client.CloseIdleConnections()
	body := []byte(fmt.Sprintf(`{"order":%09d,"text":"%s"}`, 100000000, strings.Repeat("0", payloadBytes-29)))
	var sent atomic.Int64
	began := time.Now()
	var wg sync.WaitGroup
	for range webhookConcurrency {
		wg.Go(func() {
			for time.Since(began) < measured {
				id, at := rowID(int(sent.Add(1))), strconv.FormatInt(time.Now().Unix(), 10)
				mac := hmac.New(sha256.New, secret)
				fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
				r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				r.Header.Set("webhook-id", id)
				r.Header.Set("webhook-timestamp", at)
				r.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
				r.Header.Set("Content-Type", "application/json")
				answer, err := client.Do(r)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		})
	}
	wg.Wait()
	return float64(sent.Load()) / time.Since(began).Seconds()
}
