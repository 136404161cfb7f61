package engine

import (
	"slices"
	"sync"
)

// Gate is the process's send gate: one for all its connectors, because a record that kills its worker takes all of
// them along. Normal batches hold it shared while they are delivered. A careful batch, whose records are suspected of
// killing, holds it alone from before its announcement until its settlement is confirmed, so that whatever dies
// meanwhile died of that batch. Who waits to hold it alone goes before new shared holders, else it would starve.
type Gate struct {
	mu     sync.Mutex
	shared map[*machine]int // places held; none at 0
	queue  []*machine       // the first holds the gate alone once nobody shares it
	wakers map[*machine]func()
}

// NewGate returns an open gate.
func NewGate() *Gate { return &Gate{shared: map[*machine]int{}, wakers: map[*machine]func(){}} }

// join registers the function that is called, from any goroutine and never under the gate's lock, when the gate may
// have opened for m.
func (g *Gate) join(m *machine, wake func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wakers[m] = wake
}

// part ends m's use of the gate. Places of calls that it leaves behind are given back: they may never end, and the other
// connectors would wait for ever.
func (g *Gate) part(m *machine) {
	g.mu.Lock()
	delete(g.wakers, m)
	delete(g.shared, m)
	g.queue = slices.DeleteFunc(g.queue, func(q *machine) bool { return q == m })
	wake := g.toWake()
	g.mu.Unlock()
	for _, w := range wake {
		w()
	}
}

// quiet reports whether somebody holds the gate alone or waits to: nothing normal is announced then.
func (g *Gate) quiet() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue) > 0
}

// enter takes a shared place, if nobody holds or wants the gate alone.
func (g *Gate) enter(m *machine) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) > 0 {
		return false
	}
	g.shared[m]++
	return true
}

// leave gives a shared place back.
func (g *Gate) leave(m *machine) {
	g.mu.Lock()
	var wake []func()
	if g.shared[m]--; g.shared[m] <= 0 {
		delete(g.shared, m)
		if len(g.queue) > 0 {
			wake = g.toWake()
		}
	}
	g.mu.Unlock()
	for _, w := range wake {
		w()
	}
}

// claim queues m to hold the gate alone and reports whether it does now.
func (g *Gate) claim(m *machine) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.queue, m) {
		g.queue = append(g.queue, m)
	}
	return g.queue[0] == m && len(g.shared) == 0
}

// drop gives the gate back, or leaves the queue; it does nothing for a machine that is not in it.
func (g *Gate) drop(m *machine) {
	g.mu.Lock()
	var wake []func()
	if i := slices.Index(g.queue, m); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
		wake = g.toWake()
	}
	g.mu.Unlock()
	for _, w := range wake {
		w()
	}
}

// toWake lists who may go on now: the one that waits to be alone, or, when nobody does, everybody.
func (g *Gate) toWake() []func() {
	wake := make([]func(), 0, len(g.wakers))
	if len(g.queue) > 0 {
		if w := g.wakers[g.queue[0]]; w != nil && len(g.shared) == 0 {
			wake = append(wake, w)
		}
		return wake
	}
	for _, w := range g.wakers {
		wake = append(wake, w)
	}
	return wake
}
