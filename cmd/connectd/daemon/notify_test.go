package daemon

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestSystemdIsTold that the daemon is ready and that it stops, with nobody listening to HTTP.
func TestSystemdIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	d := &Daemon{Connectors: []Connector{newRig("orders").Connector}, HTTP: "off", Log: silent()}
	go func() { done <- d.Run(ctx, nil) }()
	heard := func() string {
		buf := make([]byte, 100)
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	if got := heard(); got != "READY=1" {
		t.Errorf("heard %q", got)
	}
	cancel()
	if got := heard(); got != "STOPPING=1" {
		t.Errorf("heard %q", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
