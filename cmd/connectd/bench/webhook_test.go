//go:build linux

package bench

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/webhook"
)

const (
	webhookConcurrency = 64
	webhookDelay       = 50 * time.Millisecond
	webhookSecret      = "whsec_Y29ubmVjdGQtdGVzdC1zZWNyZXQtMzItYnl0ZXMhIQ=="
	measured           = 5 * time.Second
	// In these the sink alone and the bare client run in turn.
	turns = 5
	turn  = time.Second
)

// benchmarkWebhook sends rows as signed webhooks, one request each, to a receiver in a process of its own.
func benchmarkWebhook(b *testing.B, p programs, r *report) {
	fast, slow := startReceiver(b, p, 1, 0), startReceiver(b, p, 1, webhookDelay)
	many := startReceiver(b, p, 8, 25*time.Millisecond) // so that the backlog lasts
	for b.Loop() {
		var client, sink float64
		for range turns { // a busy machine disturbs both
			client += bareClient(b, fast.url()) / turns
			sink += sinkAlone(b, fast.url()) / turns
		}
		r.add("webhook sink / bare net/http client, same requests, 64 at once", "", "", atLeast(0.7), sink/client)
		r.add("  rate", "sink", "rows/s", goal{}, sink)
		r.add("  the bare client's", "sink", "requests/s", goal{}, client)
		for _, c := range []struct{ name, delivery string }{
			{"a record a call", ""},
			{"500 records a call", "batch: {max_records: 500}, "},
		} {
			done := publish(b, webhookSetup(b, p, fast.url(), c.delivery), measured, "")
			r.add("  from the outbox, "+c.name, c.name, "rows/s", goal{}, done.rate)
			r.add("    processor time of the daemon", c.name, "µs/row", goal{}, done.daemon)
			r.add("    processor time of the sink", c.name, "µs/row", goal{}, done.sink)
		}
		s := webhookSetup(b, p, slow.url(), "")
		rate := publish(b, s, measured, "").rate
		most := webhookConcurrency / webhookDelay.Seconds()
		r.add("webhook, 50 ms latency, 64 at once / 64 ÷ 50 ms", "", "", atLeast(0.9), rate/most)
		r.add("  rate", "50 ms", "rows/s", goal{}, rate)

		alone := manyProgress(b, p, many, false).rate
		beside := manyProgress(b, p, many, true).rate
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

// manyProgress is that of eight endpoints, to which rows go in turn, with or without a ninth that never answers, over half
// a minute from the start: the time in which the sink has to find out is in it.
func manyProgress(b *testing.B, p programs, to receiver, hanging bool) progress {
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
	return publish(b, s, 30*time.Second, fmt.Sprintf("AND aggregatetype <> '%s'", to.hanging))
}

// progress is what a daemon did in a time: rows a second, and the processor time of it and its sink for each.
type progress struct{ rate, daemon, sink float64 }

// publish runs a daemon for so long and returns how many rows it published, from the first on.
func publish(b *testing.B, s setup, long time.Duration, which string) progress {
	db := openDatabase(b, s.database())
	defer db.Close()
	d := s.run(b)
	d.await(connectorRuns, 0)
	first := published(b, db, which)
	until(b, "the first row is published", time.Millisecond, func() bool {
		first = published(b, db, which)
		return first > 0
	})
	began, daemonBefore, sinkBefore := time.Now(), cpuTime(b, d.cmd.Process.Pid), cpuTime(b, d.sinkPID())
	time.Sleep(long)
	last := published(b, db, which)
	took := time.Since(began)
	daemonUsed, sinkUsed := cpuTime(b, d.cmd.Process.Pid)-daemonBefore, cpuTime(b, d.sinkPID())-sinkBefore
	if last >= backlogRows*8/9 {
		b.Fatalf("the backlog is too small for %v", long)
	}
	_ = d.cmd.Process.Kill()
	<-d.ended
	rows := float64(last - first)
	return progress{rows / took.Seconds(), daemonUsed.Seconds() * 1e6 / rows, sinkUsed.Seconds() * 1e6 / rows}
}

func published(b *testing.B, db *sql.DB, which string) (n int) {
	if err := db.QueryRow("SELECT count(*) FROM outbox WHERE state = 'published' " + which).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// sinkAlone is the rate of the sink by itself, in this process: batches of 500 records, eight at once.
func sinkAlone(b *testing.B, url string) float64 {
	sink := webhook.New(slog.New(slog.DiscardHandler), webhook.Options{Connector: "bench", Version: "bench"})
	settings := fmt.Sprintf(`{"url": %q, "signing": {"secrets": [{"value": %q}]}, "concurrency": %d}`, url, webhookSecret, webhookConcurrency)
	if diagnostics, err := sink.Configure(b.Context(), []byte(settings)); err != nil || len(diagnostics) > 0 {
		b.Fatalf("%v, %v", diagnostics, err)
	}
	if err := sink.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = sink.Close(context.Background()) }()
	var delivered, number atomic.Int64
	body := payload()
	began := time.Now()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			batch := make([]core.Record, 500)
			for time.Since(began) < turn {
				for i := range batch {
					n := int(number.Add(1))
					batch[i] = core.Record{
						ID: rowID(n), Key: rowID(n), Keyed: true, Route: "orders", Type: "OrderPlaced", Payload: body,
						CreatedAt: began, Seq: int64(n), Deliveries: 1, Epoch: 1,
					}
				}
				outcomes, err := sink.Deliver(b.Context(), batch)
				if err != nil {
					b.Error(err)
					return
				}
				for _, o := range outcomes {
					if o.Kind != core.Delivered {
						b.Errorf("%+v", o)
						return
					}
				}
				delivered.Add(int64(len(batch)))
			}
		})
	}
	wg.Wait()
	return float64(delivered.Load()) / time.Since(began).Seconds()
}

// payload is JSON like that of the backlogs' rows.
func payload() []byte {
	return fmt.Appendf(nil, `{"order":%09d,"text":"%s"}`, 100000000, strings.Repeat("0", payloadBytes-29))
}

// bareClient is the rate at which a program with nothing else to do posts the same bodies, signed the same way and with the
// same headers, to the same receiver, as many at once.
func bareClient(b *testing.B, url string) float64 {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(webhookSecret, "whsec_"))
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: webhookConcurrency}}
	defer client.CloseIdleConnections()
	body := payload()
	var sent atomic.Int64
	began := time.Now()
	var wg sync.WaitGroup
	for range webhookConcurrency {
		wg.Go(func() {
			for time.Since(began) < turn {
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
				r.Header.Set("Connectd-Key", id)
				r.Header.Set("Connectd-Route", "orders")
				r.Header.Set("Connectd-Type", "OrderPlaced")
				r.Header.Set("Connectd-Delivery", "1")
				r.Header.Set("Connectd-Epoch", "1")
				r.Header.Set("Connectd-Created-At", "2026-11-29T12:00:00.000000Z")
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
