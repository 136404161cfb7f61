package egress

import (
	"io"
	"net/http"
	"strings"
	"testing"
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
