//go:build linux

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/connectd/connectd/plugins/host"
)

// benchmarkStart times the daemon from exec until /readyz says 200, and a bundled sink's process from its spawning
// until it is open. Each round takes the median of a few, since one start is over so soon.
func benchmarkStart(b *testing.B, p programs, r *report) {
	const starts = 3
	s := newSetup(b, p, fileSinkYAML, "")
	s.init(b)
	for b.Loop() {
		for range starts {
			r.add("connectd run: exec → ready", "", "ms", atMost(300), milliseconds(untilReady(b, s)))
			r.add("plugin: spawn → ready", "", "ms", atMost(50), milliseconds(spawn(b, p)))
		}
	}
}

func untilReady(b *testing.B, s setup) time.Duration {
	d := s.run(b)
	s.awaitReady(b)
	took := time.Since(d.started)
	d.stop()
	return took
}

// awaitReady waits until a daemon says that all its connectors are ready.
func (s setup) awaitReady(b *testing.B) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	until(b, "readyz answers 200", 2*time.Millisecond, func() bool {
		answer, err := client.Get("http://" + s.http + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// spawn starts the file sink's process as the daemon does.
func spawn(b *testing.B, p programs) time.Duration {
	dir := b.TempDir()
	began := time.Now()
	sink := host.Start(host.Spec{
		Connector: "bench", Plugin: "file", Path: p.connectd, Args: []string{"serve-sink", "--dir", dir, "file"},
		Settings: fmt.Appendf(nil, `{"path":%q}`, filepath.Join(dir, "out.jsonl")), RuntimeDir: dir,
	}, slog.New(slog.DiscardHandler))
	err := sink.Ready(b.Context())
	took := time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	if err := sink.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	return took
}
