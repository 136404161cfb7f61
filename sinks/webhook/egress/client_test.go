package egress

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/connectd/connectd/core/tlsfiles"
)

func TestRequestAndAnswer(t *testing.T) {
	u := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", r.Method+" "+r.RequestURI+" "+r.Header.Get("X-Mine")+" "+r.Header.Get("Accept-Encoding"))
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, strings.ToUpper(string(body)))
	})
	c := client(t, Config{Capture: 5})
	answer, err := c.Do(t.Context(), Request{
		Method: "PUT", URL: parse(t, u.String()+"/a%2Fb?c=d"), Header: http.Header{"X-Mine": {"me"}}, Body: []byte("hello"),
	})
	wantStatus(t, 202, answer, err)
	if string(answer.Body) != "HELLO" || !answer.Whole || answer.Header.Get("X-Seen") != "PUT /a%2Fb?c=d me" {
		t.Errorf("body %q, whole %v, header %v", answer.Body, answer.Whole, answer.Header)
	}
	answer, err = post(t, c, u, "longer than five")
	wantStatus(t, 202, answer, err)
	if string(answer.Body) != "LONGE" || answer.Whole {
		t.Errorf("body %q, whole %v", answer.Body, answer.Whole)
	}
}

// TestHeadersOfTheConnection are not the caller's: over both protocols the request arrives without them, and the
// connection is used again.
func TestHeadersOfTheConnection(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		u, _ := secureServer(t, nil, http2, func(w http.ResponseWriter, r *http.Request) {
			if len(r.Header) != 3 || r.Close || r.Host == "evil.example" || r.ContentLength != 1 { // with Content-Length and User-Agent
				t.Errorf("%v, close %v, host %s, length %d", r.Header, r.Close, r.Host, r.ContentLength)
			}
			w.Header().Set("X-From", r.RemoteAddr)
		})
		c := client(t, Config{HTTP2: http2, TLS: tlsfiles.Settings{InsecureSkipVerify: true}})
		header := http.Header{"X-Mine": {"1"}, "Host": {"evil.example"}, "Content-Length": {"77"}}
		for _, name := range aboutConnection {
			header.Set(name, "close")
		}
		header.Set("Upgrade", "websocket")
		var from []string
		for range 2 {
			a, err := c.Do(t.Context(), Request{Method: "POST", URL: u, Header: header, Body: []byte("x")})
			wantStatus(t, 200, a, err)
			from = append(from, a.Header.Get("X-From"))
		}
		if from[0] != from[1] {
			t.Errorf("HTTP/2 %v: the connection was not used again", http2)
		}
		if header.Get("Upgrade") == "" {
			t.Error("the caller's header has changed")
		}
	}
}
