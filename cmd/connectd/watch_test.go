package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// pictures reads the lag in each picture that `status --watch --json` has printed; the last one may be unfinished.
func pictures(t *testing.T, out string) (lags []int64) {
	t.Helper()
	for decoder := json.NewDecoder(strings.NewReader(out)); ; {
		var picture struct{ Connectors []connectorStatus }
		err := decoder.Decode(&picture)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return lags
		}
		if err != nil || len(picture.Connectors) != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		lags = append(lags, picture.Connectors[0].Lag.Rows)
	}
}

// TestStatusWatchRefreshes: each picture is read anew.
func TestStatusWatchRefreshes(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	s := openShop(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr buffer
	code := make(chan int, 1)
	go func() {
		args := configured(dir, []string{"status", "--watch", "--json"})
		code <- run(ctx, args, strings.NewReader(""), &stdout, &stderr, func(string) (string, bool) { return "", false })
	}()
	shows := func(what string, lag int64) {
		t.Helper()
		eventually(t, what, func() (bool, string) {
			lags := pictures(t, stdout.String())
			return len(lags) > 0 && lags[len(lags)-1] == lag, stdout.String() + stderr.String()
		})
	}
	shows("an empty table", 0)
	s.insert(3, 1)
	shows("three rows", 3)
	s.insert(2, 1)
	shows("five rows", 5)
	if strings.Contains(stdout.String(), "\x1b") {
		t.Error("escape sequences are written to what is no terminal")
	}
	cancel()
	if c := <-code; c != 0 {
		t.Errorf("exit code %d: %s", c, stderr.String())
	}
}
