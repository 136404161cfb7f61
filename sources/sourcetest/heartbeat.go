package sourcetest

import (
	"bytes"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

var workerTests = []test{
	{"each live worker is counted once", heartbeatCounts},
	{"a silent worker is not live, and forgotten after ten times ttl", heartbeatForgets},
	{"Leave removes the heartbeat, also twice", heartbeatLeave},
	{"what a worker publishes is shown, the newest only", heartbeatInfo},
	{"a heartbeat is no lease and a lease no heartbeat", heartbeatApart},
}

func (w *worker) beat(info string, ttl time.Duration) core.Pulse {
	w.t.Helper()
	pulse, err := w.src.Heartbeat(w.ctx, w.owner, []byte(info), ttl)
	w.must(err)
	return pulse
}

func (w *worker) workers() map[string]core.WorkerInfo {
	w.t.Helper()
	list, err := w.op.Workers(w.ctx)
	w.must(err)
	workers := map[string]core.WorkerInfo{}
	for _, info := range list {
		workers[info.Owner] = info
	}
	return workers
}

func heartbeatCounts(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	one, two := join(t, table, "one"), join(t, table, "two")
	want(t, "live workers", one.beat("{}", long).Live, 1)
	want(t, "live workers after a second beat", one.beat("{}", long).Live, 1)
	want(t, "live workers with another", two.beat("{}", long).Live, 2)
	want(t, "workers shown", len(one.workers()), 2)
}

func heartbeatForgets(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	one, two := join(t, table, "one"), join(t, table, "two")
	two.beat("{}", long)
	one.beat("{}", long)
	const ttl = 30 * time.Millisecond
	one.until("the silent worker not to be live", func() bool { return one.beat("{}", ttl).Live == 1 })
	one.until("the silent worker to be forgotten", func() bool {
		one.beat("{}", ttl)
		_, there := one.workers()["two"]
		return !there
	})
	want(t, "live workers when it is back", two.beat("{}", long).Live, 2)
}

func heartbeatLeave(t *testing.T, h Harness) {
	table := h.New(t, Options{})
	one, two := join(t, table, "one"), join(t, table, "two")
	one.beat("{}", long)
	two.beat("{}", long)
	for range 2 {
		two.must(two.src.Leave(two.ctx, "two"))
	}
	want(t, "live workers", one.beat("{}", long).Live, 1)
	want(t, "workers shown", len(one.workers()), 1)
}

func heartbeatInfo(t *testing.T, h Harness) {
	w := join(t, h.New(t, Options{}), "one")
	info := `{"text":"é 😀","fill":"` + string(bytes.Repeat([]byte("x"), 60_000)) + `"}`
	w.beat(`{"old":1}`, long)
	w.beat(info, long)
	got := w.workers()["one"]
	want(t, "info", string(got.Info), info)
	if got.Age < -time.Second || got.Age > patience {
		t.Errorf("age is %v", got.Age)
	}
	if _, err := w.src.Heartbeat(w.ctx, "bare", nil, long); err != nil {
		t.Error(err)
	}
	want(t, "workers shown", len(w.workers()), 2)
}

// A live worker that is judged dead loses its place, not its rows: https://github.com/JasperFx/wolverine/issues/585
func heartbeatApart(t *testing.T, h Harness) {
	table, one := start(t, h)
	want(t, "workers shown", len(one.workers()), 0)
	two := join(t, table, "two")
	two.beat("{}", long)
	one.must(one.step(0, core.Change{}))
	want(t, "partitions taken from a worker without a heartbeat", len(two.acquire(1000, false)), 0)
	two.must(two.src.Leave(two.ctx, "one"))
	one.must(one.step(0, core.Change{}))
}
