package engine_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
)

// lockedBuffer is a log that several goroutines write and one reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestTheLogTellsOfRowsThatNeedAPerson, at once and then in a bounded number of lines.
func TestTheLogTellsOfRowsThatNeedAPerson(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		log := &lockedBuffer{}
		w.sink.Decide(func(r core.Record) core.Outcome {
			return core.Outcome{Kind: core.Permanent, Code: "http_422", Message: "no such product"}
		})
		defer w.start(w.connector(func(c *engine.Connector) { c.Log = slog.New(slog.NewTextHandler(log, nil)) }))()
		w.add("first", "k")
		w.wait(time.Second, "a line", func() bool {
			return strings.Contains(log.String(), `rows=1 id=first state=dead reason="http_422: no such product"`)
		})
		for i := range 1000 {
			w.add(fmt.Sprintf("later-%d", i), fmt.Sprintf("k%d", i))
			time.Sleep(10 * time.Millisecond)
		}
		w.wait(time.Minute, "a line for the rest", func() bool { return strings.Contains(log.String(), "id=later-0 ") })
		w.wait(time.Minute, "all dead", func() bool { return w.states()[core.Dead] == 1001 })
		time.Sleep(time.Minute)
		if n := strings.Count(log.String(), "rows need a person"); n > 4 {
			t.Errorf("%d lines about 1001 rows in ten seconds:\n%s", n, log)
		}
	})
}
