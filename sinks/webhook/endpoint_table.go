package webhook

import (
	"container/list"
	"sync"
)

// maxEndpoints is how many endpoints are remembered, about a kilobyte each.
const maxEndpoints = 16384

// endpoints is what is known of all endpoints: of those in use, and of others up to a bound, those that were not used
// for longest forgotten first.
type endpoints struct {
	most   int
	create func(name string) *endpoint

	mu     sync.Mutex
	byName map[string]*endpoint
	idle   list.List // of *endpoint, longest unused first
}

func newEndpoints(most int, create func(name string) *endpoint) *endpoints {
	return &endpoints{most: most, create: create, byName: map[string]*endpoint{}}
}

// borrow returns the endpoint of that name. It must be given back.
func (t *endpoints) borrow(name string) *endpoint {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byName[name]
	if e == nil {
		for t.idle.Len() > 0 && len(t.byName) >= t.most {
			delete(t.byName, t.idle.Remove(t.idle.Front()).(*endpoint).name)
		}
		e = t.create(name)
		t.byName[name] = e
	}
	if e.element != nil {
		t.idle.Remove(e.element)
		e.element = nil
	}
	e.users++
	return e
}

func (t *endpoints) giveBack(e *endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.users--; e.users == 0 {
		e.element = t.idle.PushBack(e)
	}
}
