package egress

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkDo sends 1 KB from eight callers to a server of this process, and so does a bare client of net/http.
func BenchmarkDo(b *testing.B) {
	u := server(b, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	body := []byte(strings.Repeat("x", 1024))
	header := http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {"1"}, "User-Agent": {"bench"}}
	run := func(b *testing.B, send func() error) {
		b.SetParallelism(4)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := send(); err != nil {
					b.Error(err)
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	}
	b.Run("egress", func(b *testing.B) {
		c := client(b, Config{Capture: 1024})
		run(b, func() error {
			_, err := c.Do(b.Context(), Request{Method: "POST", URL: u, Header: header, Body: body})
			return err
		})
	})
	b.Run("bare", func(b *testing.B) {
		transport := &http.Transport{MaxIdleConnsPerHost: 64}
		defer transport.CloseIdleConnections()
		c := &http.Client{Transport: transport}
		run(b, func() error {
			r, err := http.NewRequestWithContext(b.Context(), "POST", u.String(), bytes.NewReader(body))
			if err != nil {
				return err
			}
			r.Header = header.Clone()
			answer, err := c.Do(r)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			_, err = io.Copy(io.Discard, answer.Body)
			return err
		})
	})
}
