package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/webhook/signature"
)

// plainReceiver takes everything and keeps nothing.
func plainReceiver(b *testing.B, latency time.Duration) string {
	r := receive(b)
	r.always(answer{early: true, do: func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		if latency > 0 {
			time.Sleep(latency)
		}
		w.WriteHeader(http.StatusNoContent)
	}})
	return r.url()
}

func benchRecord(i int) core.Record {
	r := record(fmt.Sprintf("0198c9a0-7e1b-7000-8000-%012d", i), fmt.Sprintf("customer-%05d", i))
	r.Payload = []byte(`{"text":"` + strings.Repeat("x", 1000) + `"}`)
	return r
}

// spread calls do n times from so many goroutines, each time with another number, and returns how long it took.
func spread(n, goroutines int, do func(i int)) time.Duration {
	begin := time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				do(int(i))
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}

// BenchmarkAgainstClient sends records of 1 KB, signed, through Deliver and through net/http alone, in turn: the same
// bodies, headers and signatures, as many at once, to the same server, which shares the machine.
func BenchmarkAgainstClient(b *testing.B) {
	for _, concurrency := range []int{8, 64} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			url := plainReceiver(b, 0)
			s := opened(b, to(url, fmt.Sprintf(`, "concurrency": %d, "signing": {"secrets": [{"value": %q}]}`, concurrency, testSecret)))
			key, err := signature.ParseKey(testSecret)
			if err != nil {
				b.Fatal(err)
			}
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: concurrency}, Timeout: 20 * time.Second}
			defer client.CloseIdleConnections()
			const rows = 2000
			var bare, sink time.Duration
			for b.Loop() {
				bare += spread(rows, concurrency, func(i int) { post(b, client, url, key, benchRecord(i)) })
				sink += spread(rows, concurrency, func(i int) { deliverOne(b, s, benchRecord(i)) })
			}
			b.ReportMetric(float64(b.N*rows)/sink.Seconds(), "sink-rows/s")
			b.ReportMetric(float64(b.N*rows)/bare.Seconds(), "client-rows/s")
			b.ReportMetric(bare.Seconds()/sink.Seconds(), "ratio")
		})
	}
}

// post is what a program does that has a record and net/http.
func post(b *testing.B, client *http.Client, url string, key signature.Key, r core.Record) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(r.Payload))
	if err != nil {
		b.Error(err)
		return
	}
	now := time.Now()
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "connectd/test",
		"Webhook-Id": r.ID, "Webhook-Timestamp": strconv.FormatInt(now.Unix(), 10),
		"Webhook-Signature": signature.Standard([]signature.Key{key}, r.ID, now, r.Payload),
		"Connectd-Key":      r.Key, "Connectd-Type": r.Type, "Connectd-Delivery": strconv.Itoa(r.Deliveries),
		"Connectd-Epoch": strconv.FormatInt(r.Epoch, 10), "Connectd-Created-At": r.CreatedAt.Format(time.RFC3339),
	} {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		b.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		b.Error(response.Status)
	}
}

// BenchmarkLatency has a receiver that takes 50 ms for each request, and 64 requests at once. More than 64 in 50 ms is not
// possible; ratio is the share of it that Deliver reaches, and client that of net/http alone, in turn.
func BenchmarkLatency(b *testing.B) {
	const latency, concurrency, rows = 50 * time.Millisecond, 64, 3200
	url := plainReceiver(b, latency)
	s := opened(b, to(url, fmt.Sprintf(`, "signing": {"secrets": [{"value": %q}]}`, testSecret)))
	key, err := signature.ParseKey(testSecret)
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: concurrency}, Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	var bare, sink time.Duration
	for b.Loop() {
		bare += spread(rows, concurrency, func(i int) { post(b, client, url, key, benchRecord(i)) })
		sink += spread(rows, concurrency, func(i int) { deliverOne(b, s, benchRecord(i)) })
	}
	share := func(took time.Duration) float64 {
		return float64(b.N*rows) / took.Seconds() / (concurrency / latency.Seconds())
	}
	b.ReportMetric(share(sink), "ratio")
	b.ReportMetric(share(bare), "client")
}

func deliverOne(b *testing.B, s *Sink, r core.Record) {
	if o, err := s.Deliver(context.Background(), []core.Record{r}); err != nil || o[0].Kind != core.Delivered {
		b.Error(o, err)
	}
}

// BenchmarkHangingEndpoint has eight endpoints that take 50 ms for a request, 128 calls at once and the default limits,
// until one of the eight hangs. The timeouts are a tenth of the defaults, and so are 30 seconds. It gives the rate of the
// other seven from the moment the eighth hangs ("first") and later ("steady"), as shares of their rate when nobody sends
// to the eighth.
func BenchmarkHangingEndpoint(b *testing.B) {
	const scaled = `, "timeouts": {"connect": "500ms", "tls": "500ms", "header": "1500ms", "total": "2s"}, "breaker": {"open_for": "3s"}`
	const period = 3 * time.Second
	var receivers []*receiver
	var routes []string
	for range 8 {
		r := receive(b)
		r.always(after(50*time.Millisecond, status(204)))
		receivers, routes = append(receivers, r), append(routes, r.url())
	}
	others := func(c *traffic) (sum int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, route := range routes[:7] {
			sum += c.delivered[route]
		}
		return sum
	}
	measure := func(routes []string, hang func() (restore func())) (rates []float64) {
		c := &traffic{sink: manyOpened(b, scaled, receivers...), calls: 128, record: among(routes...)}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			c.run(ctx, 40*len(routes), -1)
			close(ended)
		}()
		time.Sleep(time.Second) // all windows are wide
		restore := hang()
		for range 2 {
			before, begin := others(c), time.Now()
			time.Sleep(period)
			rates = append(rates, float64(others(c)-before)/time.Since(begin).Seconds())
		}
		restore()
		cancel()
		<-ended
		return rates
	}
	var base, first, steady float64
	for b.Loop() {
		rates := measure(routes[:7], func() func() { return func() {} })
		base += (rates[0] + rates[1]) / 2
		rates = measure(routes, func() func() { return receivers[7].hang(b) })
		first += rates[0]
		steady += rates[1]
	}
	b.ReportMetric(base/float64(b.N), "rows/s")
	b.ReportMetric(first/base, "first")
	b.ReportMetric(steady/base, "steady")
}
