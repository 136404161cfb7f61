package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"
)

// watch shows what arrives until ctx is done: a record now and then, and the counts each second.
func watch(ctx context.Context, path string, s *screen, shop *shop) {
	w := watcher{screen: s, seen: map[string]bool{}}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		w.read(path)
		if n%10 == 0 {
			committed, rolledBack := shop.counts()
			s.progress(committed, rolledBack, len(w.seen), w.copies)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watcher follows the file the sink writes.
type watcher struct {
	screen *screen
	offset int64
	seen   map[string]bool
	copies int
	shown  time.Time
}

// read takes the whole lines that are new. A last line without its end is left for later: it may be cut off when the
// sink is killed, and written anew.
func (w *watcher) read(path string) {
	f, err := os.Open(path)
	if err != nil {
		return // not there before the first record
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(w.offset, io.SeekStart); err != nil {
		return
	}
	r := bufio.NewReader(f)
	for {
		text, err := r.ReadBytes('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				w.screen.say("reading what arrived failed: " + err.Error())
			}
			return
		}
		w.offset += int64(len(text))
		var a arrival
		if json.Unmarshal(text, &a) != nil {
			continue // the audit at the end complains
		}
		w.take(a)
	}
}

func (w *watcher) take(a arrival) {
	again := w.seen[a.ID]
	w.seen[a.ID] = true
	if again {
		w.copies++
	}
	if time.Since(w.shown) > 700*time.Millisecond {
		w.shown = time.Now()
		w.screen.arrived(a)
	}
}
