package daemon

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// served serves on a real listener until the test ends.
func served(t *testing.T, s *server) string {
	t.Helper()
	l, err := listen("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func dial(t *testing.T, address, first string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, first); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestProbesAreAnsweredInACrowd: whatever connections without the token do, /healthz is answered soon, and
// requests with it are answered on the connections that they came on.
func TestProbesAreAnsweredInACrowd(t *testing.T) {
	for what, first := range map[string]string{
		"idle":      "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"silent":    "",
		"slow":      "GET /healthz HTTP/1.1\r\nHost:",
		"no token":  "POST /api/v1/receipts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{",
		"bad token": "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n",
	} {
		t.Run(what, func(t *testing.T) {
			books := standing{came: make(chan struct{}), goOn: make(chan struct{})}
			s := testServer("s3cret")
			s.books = func() []bookkeeper { return []bookkeeper{{connector: "orders", books: books}} }
			address := served(t, s)
			const asked = "GET /api/v1/receipts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\n\r\n"
			running := dial(t, address, asked)
			<-books.came
			for range 300 {
				conn := dial(t, address, first)
				if what == "idle" {
					expect(t, conn, 200)
				}
			}
			// In an idle machine's milliseconds; the shortest time after which the server itself ends such a connection is 5s.
			client := http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			for range 3 {
				r, err := client.Get("http://" + address + "/healthz")
				if err != nil {
					t.Fatal(err)
				}
				if text := body(t, r); r.StatusCode != 200 {
					t.Errorf("%d %s", r.StatusCode, text)
				}
			}
			close(books.goOn)
			expect(t, running, 200)
		})
	}
}

func expect(t *testing.T, conn net.Conn, status int) *http.Response {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body(t, r)
	if r.StatusCode != status {
		t.Errorf("%s, want %d", r.Status, status)
	}
	return r
}

// TestRequestsWithTheTokenLeaveRoomForProbes: there are never so many that a probe is not let in, and when one of them
// is answered another one is taken.
func TestRequestsWithTheTokenLeaveRoomForProbes(t *testing.T) {
	books := standing{came: make(chan struct{}), goOn: make(chan struct{})}
	s := testServer("")
	s.books = func() []bookkeeper { return []bookkeeper{{connector: "orders", books: books}} }
	address := served(t, s)
	asked := "GET /api/v1/receipts HTTP/1.1\r\nHost: localhost\r\n\r\n"
	var running []net.Conn
	for range maxHeld {
		running = append(running, dial(t, address, asked))
		<-books.came
	}
	if r := expect(t, dial(t, address, asked), 503); r.Header.Get("Retry-After") == "" {
		t.Errorf("%v", r.Header)
	}
	expect(t, dial(t, address, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"), 200)
	close(books.goOn)
	for _, conn := range running {
		expect(t, conn, 200)
	}
	again := running[0]
	if _, err := io.WriteString(again, asked); err != nil {
		t.Fatal(err)
	}
	<-books.came
	expect(t, again, 200)
}
