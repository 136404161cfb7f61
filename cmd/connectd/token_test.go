package main

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// bearer asks a URL and shows a token, if it is not empty.
func bearer(t *testing.T, url, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

// addresses are loopback, and an address of this machine that others can reach, if it has one.
func addresses(t *testing.T) []string {
	t.Helper()
	list := []string{"127.0.0.1"}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return append(list, n.IP.String())
		}
	}
	t.Log("this machine has loopback addresses only")
	return list
}

// TestTokenBeyondLoopback: a listener that others can reach answers who shows the token, and probes; reasons it tells only
// those. Without a token there is no such listener.
func TestTokenBeyondLoopback(t *testing.T) {
	t.Parallel()
	const token = "a-token-of-the-test"
	dir := t.TempDir()
	write(t, dir, "token", token+"\n")
	write(t, dir, "connectd.yaml", "daemon: {http: \"0.0.0.0:0\"}\n"+quickstart)
	connectd(t, dir, "run").want(t, 1, "connectd.yaml:1:10: daemon.http is not a loopback address", "daemon.token")
	write(t, dir, "connectd.yaml", quickstart)
	connectd(t, dir, "run", "--http", "0.0.0.0:0").want(t, 1, "open to other machines", "daemon.token")
	if left := listDir(t, dir); len(left) != 2 {
		t.Errorf("something was started: %v", left)
	}
	write(t, dir, "connectd.yaml", "daemon: {token: \"${file:./token}\"}\n"+quickstart)
	d := startDaemonWith(t, dir, []string{"--http", "0.0.0.0:0"}) // there is no database
	d.eventually("it looked for its database", func() (bool, string) {
		return strings.Contains(d.log.String(), "connector does not run"), d.log.String()
	})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(d.url(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range addresses(t) {
		url := "http://" + net.JoinHostPort(host, port)
		for path, want := range map[string]string{"/metrics": "connectd_build_info", "/": "/readyz"} {
			if code, body := bearer(t, url+path, token); code != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s%s with the token: %d %.200s", host, path, code, body)
			}
			for _, wrong := range []string{"", "wrong", token + "x", token[:len(token)-1]} {
				if code, body := bearer(t, url+path, wrong); code != http.StatusUnauthorized || strings.Contains(body, want) {
					t.Errorf("%s%s with the token %q: %d %.200s", host, path, wrong, code, body)
				}
			}
		}
		secret := filepath.Join(dir, "shop.db")
		if code, body := bearer(t, url+"/readyz", ""); code != 503 || strings.Contains(body, secret) {
			t.Errorf("%s/readyz without the token: %d %s", host, code, body)
		}
		if code, body := bearer(t, url+"/readyz", token); code != 503 || !strings.Contains(body, secret) {
			t.Errorf("%s/readyz with the token: %d %s", host, code, body)
		}
		if code, _ := bearer(t, url+"/healthz", ""); code != http.StatusOK {
			t.Errorf("%s/healthz: %d", host, code)
		}
	}
}
