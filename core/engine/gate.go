package engine

import "sync"

// Gate is the process's send gate: one for all its connectors, because a record that kills its worker takes all of
// them along. Normal batches hold it shared while they are delivered. A careful batch, whose records are suspected of
// killing, holds it alone from before its announcement until its settlement is confirmed, so that whatever dies
// meanwhile died of that batch. Who waits to hold it alone goes before new shared holders, else it would starve.
type Gate struct {
	mu     sync.Mutex
	shared int
	queue  []*machine // the first holds the gate alone once shared is 0
	wakers map[*machine]func()
}

// NewGate returns an open gate.
func NewGate() *Gate { return &Gate{wakers: map[*machine]func(){}} }

// join registers the function that is called, from any goroutine and never under the gate's lock, when the gate may
// have opened for m.
func (g *Gate) join(m *machine, wake func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wakers[m] = wake
}

func (g *Gate) part(m *machine) {
	g.drop(m)
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.wakers, m)
}

// quiet reports whether somebody holds the gate alone or waits to: nothing normal is announced then.
func (g *Gate) quiet() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue) > 0
}

// enter takes a shared place, if nobody holds or wants the gate alone.
func (g *Gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) > 0 {
		return false
	}
	g.shared++
	return true
}

// leave gives a shared place back.
func (g *Gate) leave() {
	g.mu.Lock()
	g.shared--
	wake := g.toWake()
	g.mu.Unlock()
	for _, w := range wake {
		w()
	}
}

// claim queues m to hold the gate alone and reports whether it does now.
func (g *Gate) claim(m *machine) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := false
	for _, q := range g.queue {
		waiting = waiting || q == m
	}
	if !waiting {
		g.queue = append(g.queue, m)
	}
	return g.queue[0] == m && g.shared == 0
}

// drop gives the gate back, or leaves the queue; it does nothing for a machine that is not in it.
func (g *Gate) drop(m *machine) {
	g.mu.Lock()
	var wake []func()
	for i, q := range g.queue {
		if q == m {
			g.queue = append(g.queue[:i:i], g.queue[i+1:]...)
			wake = g.toWake()
			break
		}
	}
	g.mu.Unlock()
	for _, w := range wake {
		w()
	}
}

func (g *Gate) toWake() []func() {
	wake := make([]func(), 0, len(g.wakers))
	if len(g.queue) > 0 {
		if w := g.wakers[g.queue[0]]; w != nil && g.shared == 0 {
			wake = append(wake, w)
		}
		return wake
	}
	for _, w := range g.wakers {
		wake = append(wake, w)
	}
	return wake
}
