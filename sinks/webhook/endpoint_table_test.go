package webhook

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"
)

func TestTableForgetsWhatWasNotUsedForLongest(t *testing.T) {
	table := newEndpoints(3, func(name string) *endpoint { return &endpoint{name: name} })
	busy := table.borrow("busy")
	first := table.borrow("a")
	for _, e := range []*endpoint{first, table.borrow("b"), table.borrow("a"), table.borrow("c")} {
		table.giveBack(e)
	}
	if again := table.borrow("a"); again != first {
		t.Error("an endpoint was forgotten while it was in use")
	}
	table.giveBack(first)
	for i := range 100 {
		table.giveBack(table.borrow(fmt.Sprint(i)))
	}
	if table.borrow("busy") != busy {
		t.Error("the endpoint in use was forgotten")
	}
	if n := len(table.byName); n > 3 {
		t.Errorf("the table of 3 has %d endpoints", n)
	}
	if table.borrow("a") == first {
		t.Error("an endpoint was remembered although 100 others were used since")
	}
}

// Ten thousand tenants, and more of them than the table remembers: what is known of an endpoint is small.
func TestMemoryOfManyEndpoints(t *testing.T) {
	c := limits()
	c.RateLimit = &rateLimit{Rate: rate{100, time.Second}, Burst: 100}
	table := newEndpoints(maxEndpoints, endpointMaker(c, true, slog.New(slog.DiscardHandler)))
	before := heap()
	use := func(from, to int) {
		for i := from; i < to; i++ {
			e := table.borrow(fmt.Sprintf("https://tenant-%d.example.com:443", i))
			done, o := e.admit(t.Context(), true)
			if o != nil {
				t.Fatalf("refused: %+v", o)
			}
			done(&good)
			table.giveBack(e)
		}
	}
	use(0, 10_000)
	if each := (heap() - before) / 10_000; each > 2048 {
		t.Errorf("an endpoint weighs %d bytes", each)
	} else {
		t.Logf("an endpoint weighs %d bytes", each)
	}
	use(10_000, 4*maxEndpoints)
	if n := len(table.byName); n != maxEndpoints {
		t.Errorf("the table has %d endpoints, its bound is %d", n, maxEndpoints)
	}
	if grown := heap() - before; grown > 2048*maxEndpoints {
		t.Errorf("the table weighs %d bytes", grown)
	}
	runtime.KeepAlive(table)
}

// heap is what is in use, in bytes.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
