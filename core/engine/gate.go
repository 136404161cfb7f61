package engine

import (
	"slices"
	"sync"
)

// Gate is the process's send gate: one for all its connectors, because a record that kills its worker takes all of
// them along. Normal batches hold it shared while they are delivered. A careful batch, whose records are suspected of
// killing, holds it alone from before its announcement until its settlement is confirmed, so that whatever dies
// meanwhile died of that batch.
//
// Neither side starves the other. Who waits to hold it alone goes before new shared holders; and when it is given back,
// each connector that was refused meanwhile has a turn, one pass of its machine, before anybody holds it alone again.
type Gate struct {
	mu      sync.Mutex
	shared  map[*machine]int  // places held; none at 0
	queue   []*machine        // who wants to hold it alone, in order
	alone   *machine          // who does
	refused map[*machine]bool // since it is held or wanted alone
	turns   map[*machine]bool // who may go in although somebody wants it alone
	wakers  map[*machine]func()
}

// NewGate returns an open gate.
func NewGate() *Gate {
	return &Gate{shared: map[*machine]int{}, refused: map[*machine]bool{}, turns: map[*machine]bool{}, wakers: map[*machine]func(){}}
}

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
	for _, held := range []map[*machine]bool{g.refused, g.turns} {
		delete(held, m)
	}
	delete(g.wakers, m)
	delete(g.shared, m)
	g.unqueue(m)
	g.unlockAndWake(g.toWake())
}

// quiet reports whether somebody else's wish to hold the gate alone, or m's own, goes before normal batches: none is
// announced then.
func (g *Gate) quiet(m *machine) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refuses(m)
}

// enter takes a shared place, if nobody holds or wants the gate alone or it is m's turn.
func (g *Gate) enter(m *machine) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refuses(m) {
		return false
	}
	g.shared[m]++
	return true
}

func (g *Gate) refuses(m *machine) bool {
	if len(g.queue) == 0 || g.turns[m] {
		return false
	}
	g.refused[m] = true
	return true
}

// leave gives a shared place back.
func (g *Gate) leave(m *machine) {
	g.mu.Lock()
	if g.shared[m]--; g.shared[m] <= 0 {
		delete(g.shared, m)
	}
	var wake []func()
	if len(g.queue) > 0 {
		wake = g.toWake()
	}
	g.unlockAndWake(wake)
}

// pass ends m's turn, if it has one.
func (g *Gate) pass(m *machine) {
	g.mu.Lock()
	var wake []func()
	if g.turns[m] {
		delete(g.turns, m)
		wake = g.toWake()
	}
	g.unlockAndWake(wake)
}

// claim queues m to hold the gate alone and reports whether it does now.
func (g *Gate) claim(m *machine) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.queue, m) {
		g.queue = append(g.queue, m)
	}
	if g.free() && g.queue[0] == m {
		g.alone = m
	}
	return g.alone == m
}

// drop gives the gate back, or leaves the queue; it does nothing for a machine that is not in it.
func (g *Gate) drop(m *machine) {
	g.mu.Lock()
	var wake []func()
	if g.unqueue(m) {
		wake = g.toWake()
	}
	g.unlockAndWake(wake)
}

func (g *Gate) unqueue(m *machine) bool {
	i := slices.Index(g.queue, m)
	if i < 0 {
		return false
	}
	g.queue = slices.Delete(g.queue, i, i+1)
	if g.alone == m {
		g.alone = nil
		g.turns, g.refused = g.refused, map[*machine]bool{}
	}
	return true
}

// free reports whether the first in the queue may hold the gate alone.
func (g *Gate) free() bool { return g.alone == nil && len(g.shared) == 0 && len(g.turns) == 0 }

// toWake lists who may go on now: who has a turn, then the one that waits to be alone; when nobody does, everybody.
func (g *Gate) toWake() []func() {
	var wake []func()
	for m, w := range g.wakers {
		if len(g.queue) == 0 || g.turns[m] || g.free() && g.queue[0] == m {
			wake = append(wake, w)
		}
	}
	return wake
}

func (g *Gate) unlockAndWake(wake []func()) {
	g.mu.Unlock()
	for _, w := range wake {
		w()
	}
}
