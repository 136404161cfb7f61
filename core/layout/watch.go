package layout

import (
	"context"
	"strings"
	"time"
)

// How long a step may take before somebody is told, and until that is said again.
const (
	tellAfter = 2 * time.Second
	tellAgain = 30 * time.Second
)

// Watch runs f. When it takes longer than two seconds, tell is given what say answers then, and again every half a minute;
// with "" nothing is told. say and tell are called on another goroutine, which has ended when Watch returns; the context
// of say ends with f. tell may be nil.
func Watch(ctx context.Context, tell func(string), say func(ctx context.Context) string, f func() error) error {
	if tell == nil {
		return f()
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(tellAfter)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			if text := say(ctx); text != "" && ctx.Err() == nil {
				tell(text)
			}
			timer.Reset(tellAgain)
		}
	}()
	defer func() {
		cancel()
		<-ended
	}()
	return f()
}

// Brief is the first sentence of why a step of a plan is there.
func Brief(why string) string {
	first, _, _ := strings.Cut(why, ". ")
	return first
}
