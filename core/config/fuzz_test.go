package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core/config"
)

// FuzzLoad: whatever a file holds, Load ends without a panic, every problem has a place in the file, and what it lets
// pass is usable.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		full, least, in("    delivery: &d {lease: 5s}\n  x: *d"), "a: &x [*x]", "- - - a", "? a\n: b\n", "a: |\n  b\n c", "\"\\u0000\": ${A}",
		"connectors: {a: {source: {plugin: sqlite, path: x}, sink: {plugin: file, n: .5, m: 0x1F, \"${\": !x y}}}", "---\r\n%A\r\n", "&a *b : <<",
	} {
		f.Add([]byte(seed))
	}
	lookup := env("A", "value", "TOKEN", "t", "ORDERS_DSN", "postgres://u@h/d")
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		hang := time.AfterFunc(5*time.Second, func() { panic("Load hangs") })
		defer hang.Stop()
		cfg, err := config.Load([]string{file}, lookup)
		lines := strings.Count(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n") + 1
		var problems config.Problems
		if err != nil && !errors.As(err, &problems) {
			t.Errorf("the error is no Problems: %v", err)
		}
		for _, p := range problems {
			if p.Pos.File != file || p.Pos.Line < 0 || p.Message == "" || p.Pos.Line > lines+strings.Count(string(data), "\r") {
				t.Errorf("problem %+v in %d lines", p, lines)
			}
		}
		if cfg == nil {
			return
		}
		for _, c := range cfg.Connectors {
			if !json.Valid(c.Sink.Settings) || c.Sink.Plugin == "" || c.Source.Plugin == "" || c.Delivery.Lease == 0 {
				t.Errorf("a connector that is not usable: %+v", c)
			}
		}
	})
}
