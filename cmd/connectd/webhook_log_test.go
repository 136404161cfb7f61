package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// TestReceiverWritesNoLog sends to a receiver that answers each request twice, the second time with the token it was
// sent. Nobody asked for that answer, and nothing of it is in the daemon's log.
func TestReceiverWritesNoLog(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() { // until the listener is closed
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go answerTwice(c)
		}
	}()
	dir := shopDir(t, fmt.Sprintf(`connectors:
  orders:
    source: {plugin: sqlite, path: ./shop.db, table: outbox}
    sink:
      plugin: webhook
      url: http://%s/hook
      auth: {type: bearer, token: hunter2-hunter2}
`, listener.Addr()))
	s := openShop(t, dir)
	d := startDaemon(t, dir)
	s.insert(20, 20)
	s.published(20)
	d.signal(syscall.SIGTERM)
	if code := d.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if log := d.log.String(); strings.Contains(log, "hunter2") || strings.Contains(log, "nsolicited") {
		t.Errorf("the receiver wrote into the log:\n%s", log)
	}
}

// answerTwice answers one request with two responses, then waits for the end of the connection.
func answerTwice(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	request, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, request.Body)
	_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nX-You-Sent: %s\r\n\r\n",
		request.Header.Get("Authorization"))
	_, _ = io.Copy(io.Discard, r)
}
