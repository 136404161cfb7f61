package webhook

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestRetryAfter reads whole seconds and HTTP's three dates, and takes nothing else for a zero.
func TestRetryAfter(t *testing.T) {
	j := judging(t, "")
	const absent = -1
	for value, want := range map[string]time.Duration{
		"1": time.Second, "120": 2 * time.Minute, " 120 ": 2 * time.Minute, "\t5": 5 * time.Second, "007": 7 * time.Second,
		"0": time.Second, "3600": time.Hour, "3601": time.Hour, "86400000": time.Hour, "9223372036854775807": time.Hour,
		"Sun, 29 Nov 2026 12:01:00 GMT":  time.Minute,
		"Sunday, 29-Nov-26 12:01:00 GMT": time.Minute,
		"Sun Nov 29 12:01:00 2026":       time.Minute,
		"Sun, 29 Nov 2026 11:00:00 GMT":  time.Second, // past
		"Sun, 29 Nov 2026 12:00:00 GMT":  time.Second, // now
		"Thu, 01 Jan 1970 00:00:00 GMT":  time.Second,
		"Fri, 31 Dec 9999 23:59:59 GMT":  time.Hour,
		"":                               absent, " ": absent, "1.5": absent, "-1": absent, "+1": absent, "1s": absent, "1e3": absent, "0x10": absent, "１": absent,
		"10, 20": absent, "10;x": absent, "99999999999999999999": absent, "00000000000000000001": absent,
		"9223372036854775808":  absent,
		"2026-11-29T12:01:00Z": absent, "2026-11-29": absent, "Sun, 29 Nov 2026 12:01:00 +0100": absent, "soon": absent,
		"Sun, 29 Nov 2026 12:01:00 GMT, 5": absent,
	} {
		wait, found := retryAfter(http.Header{"Retry-After": {value}}, j.now())
		switch {
		case found != (want != absent):
			t.Errorf("%q: found %v (%v)", value, found, wait)
		case found && j.clamp(wait) != want:
			t.Errorf("%q: %v, clamped %v, want %v", value, wait, j.clamp(wait), want)
		}
	}
	for _, h := range []http.Header{{}, {"Retry-After": {}}, {"Retry-After": {"10", "20"}}} {
		if wait, found := retryAfter(h, j.now()); found {
			t.Errorf("%v: %v", h, wait)
		}
	}
}

// TestRetryAfterJitter makes waits longer, never shorter.
func TestRetryAfterJitter(t *testing.T) {
	j := judging(t, `,"retry_after_max":"5m"`)
	for random, want := range map[float64]time.Duration{0: 100 * time.Second, 0.5: 105 * time.Second, 0.999999: 109 * time.Second} {
		j.random = func() float64 { return random }
		if got := j.clamp(100 * time.Second); got < want || got > 110*time.Second {
			t.Errorf("chance %v: %v", random, got)
		}
		if got := j.clamp(time.Hour); got < 5*time.Minute || got > 5*time.Minute+30*time.Second {
			t.Errorf("chance %v: %v, above retry_after_max", random, got)
		}
	}
}

// FuzzRetryAfter holds that whatever the header is, the wait is within bounds, and that there is one only for digits and
// dates.
func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{"120", "-1", "1.5", "10, 20", "Sun, 29 Nov 2026 12:01:00 GMT", "99999999999999999999"} {
		f.Add(value)
	}
	j := judging(f, "")
	f.Fuzz(func(t *testing.T, value string) {
		wait, found := retryAfter(http.Header{"Retry-After": {value}}, j.now())
		if !found {
			return
		}
		if got := j.clamp(wait); got < minRetryAfter || got > time.Duration(j.config.RetryAfterMax) {
			t.Fatalf("%q makes %v", value, got)
		}
		text := strings.Trim(value, " \t")
		if _, err := http.ParseTime(text); err != nil && strings.Trim(text, "0123456789") != "" {
			t.Fatalf("%q is neither seconds nor a date", value)
		}
	})
}
