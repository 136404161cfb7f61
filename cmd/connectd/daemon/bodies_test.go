package daemon

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// letters never ends.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// edited is a table that keeps each edit for a while.
type edited struct{ gone }

func (edited) Edit(context.Context, core.Act, core.Edit) error {
	time.Sleep(20 * time.Millisecond)
	return nil
}

// TestManyLargeBodiesTakeLittleTogether: each is answered, or told to come again.
func TestManyLargeBodiesTakeLittleTogether(t *testing.T) {
	s := testServer("")
	s.books = func() []bookkeeper { return []bookkeeper{{connector: "orders", books: away{}, rows: edited{}}} }
	h := s.handler()
	const head, tail = `{"ids":["there"],"payload":"`, `"}`
	const size = maxRowsBody - len(head) - len(tail)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			text := io.MultiReader(strings.NewReader(head), io.LimitReader(letters{}, int64(size)), strings.NewReader(tail))
			r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8083/api/v1/rows/retry", text)
			r.Header.Set("Content-Type", "application/json")
			r.ContentLength = maxRowsBody
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	var peak uint64
	for tick := time.NewTicker(time.Millisecond); ; {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse)
		select {
		case <-tick.C:
			continue
		case <-done:
			tick.Stop()
		}
		break
	}
	t.Logf("%d MiB at most", peak>>20)
	if peak > 12*maxBodies {
		t.Errorf("20 bodies of %d bytes took %d", maxRowsBody, peak)
	}
}
