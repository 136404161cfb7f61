package webhook

import (
	"fmt"
	"net"
	"testing"

	"github.com/connectd/connectd/core"
)

// Ten thousand receivers, each an address of its own on the loopback network: neither memory nor connections grow with them.
func TestTenThousandReceivers(t *testing.T) {
	r := startReceiver(t, "0.0.0.0:0", nil, false)
	s := manyOpened(t, "", r)
	_, port, err := net.SplitHostPort(r.address)
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	c := &traffic{sink: s, calls: 128, record: func(key, n int) core.Record {
		rec := record(fmt.Sprintf("%d-%d", key, n), fmt.Sprint(key))
		rec.Route = fmt.Sprintf("http://127.1.%d.%d:%s/", key/250, 1+key%250, port)
		return rec
	}}
	c.run(t.Context(), 10_000, 10_000)
	requests, _ := r.counts()
	if len(c.delivered) < 9_900 || c.other > 128 { // when it ended, some keys had had two
		t.Errorf("%d requests to %d receivers, and %d answers that were no delivery", requests, len(c.delivered), c.other)
	}
	r.mu.Lock()
	open := len(r.conns)
	r.mu.Unlock()
	if open > 600 {
		t.Errorf("%d connections are kept", open)
	}
	if grown := int64(heap()) - int64(before); grown > 128<<20 {
		t.Errorf("10,000 receivers weigh %d bytes", grown)
	} else {
		t.Logf("10,000 receivers weigh %d bytes, the test's own included", grown)
	}
}
