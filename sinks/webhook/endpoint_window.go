package webhook

import "time"

// firstWidth is how many requests at once an endpoint gets of which nothing is known yet.
const firstWidth = 2

// window is how many requests one endpoint may have on the wire. It widens with each good answer: doubling per round trip
// up to the width at which the endpoint was last overloaded, then by one per round trip; an overload halves it. (The slow
// start and congestion avoidance of RFC 5681, section 3.1, with requests for segments.)
type window struct {
	most   float64
	width  float64
	steady float64   // from here on it widens slowly
	cut    time.Time // when it was halved
}

func newWindow(most int) window {
	w := window{most: float64(most), steady: float64(most)}
	w.width = min(firstWidth, w.most)
	return w
}

// room reports whether one more may go out beside those in use.
func (w *window) room(used int) bool { return used < int(w.width) }

// widen notes a good answer.
func (w *window) widen() {
	step := 1.0
	if w.width >= w.steady {
		step = 1 / w.width
	}
	w.width = min(w.width+step, w.most)
}

// halve notes that a request which began at the given time met an overload. One that was on its way when the window was
// halved last met the same one.
func (w *window) halve(began, now time.Time) {
	if began.Before(w.cut) {
		return
	}
	w.width = max(w.width/2, 1)
	w.steady, w.cut = w.width, now
}

// restart begins again with one request at a time, for an endpoint that was away.
func (w *window) restart() { w.width = 1 }
