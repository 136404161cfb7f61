package webhook

import (
	"fmt"
	"net"
	"testing"

	"github.com/connectd/connectd/core"
)

// Thousands of receivers, each an address of its own on the loopback network: connections do not grow with them. (What is
// remembered of each is TestMemoryOfManyEndpoints.)
func TestThousandsOfReceivers(t *testing.T) {
	r := startReceiver(t, "0.0.0.0:0", nil, false)
	s := manyOpened(t, "", r)
	_, port, err := net.SplitHostPort(r.address)
	if err != nil {
		t.Fatal(err)
	}
	c := &traffic{sink: s, calls: 128, record: func(key, n int) core.Record {
		rec := record(fmt.Sprintf("%d-%d", key, n), fmt.Sprint(key))
		rec.Route = fmt.Sprintf("http://127.1.%d.%d:%s/", key/250, 1+key%250, port)
		return rec
	}}
	c.run(t.Context(), 2000, 2000)
	requests, _ := r.counts()
	if len(c.delivered) < 1900 || c.other > 128 { // when it ended, some keys had had two
		t.Errorf("%d requests to %d receivers, and %d answers that were no delivery", requests, len(c.delivered), c.other)
	}
	r.mu.Lock()
	open := len(r.conns)
	r.mu.Unlock()
	if open > 600 {
		t.Errorf("%d connections are kept", open)
	}
}
