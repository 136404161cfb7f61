package webhook

import (
	"context"
	"sync"
	"time"
)

// places bounds the requests over all endpoints. Those on the wire have one of the active places; a request that takes
// long moves aside and leaves its place to others, so that endpoints that hang do not use up what the rest needs. Who waits
// for an endpoint stands aside too. There are as many places aside as active ones, so twice as many calls of Deliver at
// once keep the active ones busy whatever some endpoints do.
type places struct {
	active, aside chan struct{}
	slow          time.Duration // what takes long
}

func newPlaces(n int, slow time.Duration) *places {
	return &places{active: make(chan struct{}, n), aside: make(chan struct{}, n), slow: slow}
}

// enter waits for an active place. leave must be called once when the request has ended.
func (p *places) enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.active <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var mu sync.Mutex
	held := p.active
	move := time.AfterFunc(p.slow, func() {
		mu.Lock()
		defer mu.Unlock()
		if held == p.active && p.standAside() {
			held = p.aside
			<-p.active
		}
	})
	return func() {
		move.Stop()
		mu.Lock()
		defer mu.Unlock()
		<-held
		held = nil
	}, nil
}

// standAside takes a place aside, if there is one; comeBack gives it back.
func (p *places) standAside() bool {
	select {
	case p.aside <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p *places) comeBack() { <-p.aside }
