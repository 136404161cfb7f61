package egress

import (
	"net/http/httptest"
	"net/url"
	"testing"
)

// net/http counts the connection of a probe only when it is closed, if there is a limit on a host's connections.
func TestProbeWithLimitedConnections(t *testing.T) {
	server := httptest.NewServer(nil)
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{MaxConnsPerHost: 2})
	defer c.Close()
	for range 5 {
		if err := c.Probe(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
}
