package settings_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core/settings"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"500ms": 500 * time.Millisecond, "0s": 0, "1h30m": 90 * time.Minute, "1.5s": 1500 * time.Millisecond,
		"7d": 168 * time.Hour, "1d12h": 36 * time.Hour,
	} {
		if got, err := settings.ParseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "600", "0", "5seconds", "5 s", "-5s", "1h1d", "d", "-1d", "9999999h", "65535d999999h", "1.5d"} {
		if got, err := settings.ParseDuration(text); err == nil {
			t.Errorf("%q is %v, should be refused", text, got)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1024": 1024, "5B": 5, "500kB": 500_000, "2MB": 2_000_000, "1GB": 1_000_000_000,
		"64KiB": 64 << 10, "1MiB": 1 << 20, "3GiB": 3 << 30,
	} {
		if got, err := settings.ParseBytes(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "MiB", "1 MiB", "1KB", "1M", "-1", "1.5MiB", "1e6", "9223372036854775808", "9223372036GiB"} {
		if got, err := settings.ParseBytes(text); err == nil {
			t.Errorf("%q is %v, should be refused", text, got)
		}
	}
	for b, want := range map[settings.Bytes]string{0: "0", 1000: "1000", 1 << 20: "1MiB", 3 << 10: "3KiB", 1 << 40: "1024GiB"} {
		if b.String() != want {
			t.Errorf("%d is written %q", int64(b), b)
		}
	}
}

func TestSecretHidesItself(t *testing.T) {
	const text = "hunter2"
	s := settings.NewSecret(text)
	hidden := struct{ inner settings.Secret }{s} // fmt cannot call the methods of an unexported field's value
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%p"} {
		fmt.Fprintf(&out, verb+"\n", s)
		fmt.Fprintf(&out, verb+"\n", &s)
		fmt.Fprintf(&out, verb+"\n", hidden)
	}
	data, err := json.Marshal(map[string]any{"a": s, "b": &s})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(data)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "nested", hidden)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", s, "nested", hidden)
	out.Write(log.Bytes())
	if strings.Contains(out.String(), text) || strings.Contains(out.String(), "68756e74657232") {
		t.Errorf("the secret shows in\n%s", out.String())
	}
	if !strings.Contains(out.String(), "***") || s.Reveal() != text {
		t.Errorf("no stars in\n%s", out.String())
	}
	if (settings.Secret{}).String() != "" {
		t.Error("a secret that is not set looks as if it were")
	}
}

func TestNearest(t *testing.T) {
	names := []string{"retry", "max_records", "max_bytes", "topic", "id"}
	for wrong, want := range map[string]string{
		"max_record": "max_records", "maxBytes": "max_bytes", "max-bytes": "max_bytes", "tpoic": "topic", "ID": "id",
		"retires": "retry", "x": "", "tls": "", "": "", strings.Repeat("max_records", 100): "",
	} {
		if got := settings.Nearest(wrong, names); got != want {
			t.Errorf("%q: nearest is %q, want %q", wrong, got, want)
		}
	}
}
