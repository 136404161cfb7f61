//go:build linux

package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// sound is a small history in which much happened and no law is broken: a kill between the two arrivals of a row, a row
// that was rolled back, one whose commit was not answered, and a poisoned one.
func sound() *history {
	at := func(seconds float64) time.Time {
		return time.Unix(1_800_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	return &history{
		fleet: limits{daemons: 2, inFlight: 1, records: 2, lease: time.Second, poll: pollMax, call: time.Second, shares: true},
		facts: []fact{
			{ID: "a-1", Key: "a", N: 1, End: committed},
			{ID: "a-2", Key: "a", N: 2, End: committed},
			{ID: "a-3", Key: "a", N: 3, End: rolledBack},
			{ID: "a-4", Key: "a", N: 4, End: committed, Poison: refused},
			{ID: "a-5", Key: "a", N: 5, End: unknown},
			{ID: "b-1", Key: "b", N: 1, End: unknown},
			{ID: "free-1", N: 1, End: committed},
		},
		rows: map[string]row{
			"a-1":    {seq: 1, id: "a-1", state: "published", deliveries: 2},
			"a-2":    {seq: 2, id: "a-2", state: "published", deliveries: 1},
			"a-4":    {seq: 4, id: "a-4", state: "dead", deliveries: 1, attempts: 1},
			"a-5":    {seq: 5, id: "a-5", state: "published", deliveries: 1},
			"free-1": {seq: 6, id: "free-1", state: "published", deliveries: 1},
		},
		receptions: []reception{
			{ID: "a-1", Key: "a", N: 1, Delivery: 1, Epoch: 1, At: at(1)},
			{ID: "free-1", N: 1, Delivery: 1, Epoch: 1, At: at(1)},
			{ID: "a-1", Key: "a", N: 1, Delivery: 2, Marked: true, Epoch: 2, At: at(4)},
			{ID: "a-2", Key: "a", N: 2, Delivery: 1, Epoch: 2, At: at(4)},
			{ID: "a-5", Key: "a", N: 5, Delivery: 1, Epoch: 2, At: at(5)},
		},
		accidents: []accident{
			{what: daemonTerm, began: at(0), ended: at(0.5)},
			{what: daemonKill, began: at(1.5), ended: at(2)},
		},
		takeovers: []takeover{{killed: at(1.6), done: at(2.6), over: true, ready: true}},
	}
}

func TestSoundHistoryBreaksNoLaw(t *testing.T) {
	if broken := sound().check(); len(broken) > 0 {
		t.Errorf("%+v", broken)
	}
}

// TestBrokenHistories breaks each law, and only that one where the others can hold.
func TestBrokenHistories(t *testing.T) {
	change := func(id string, f func(r *row)) func(h *history) {
		return func(h *history) {
			r := h.rows[id]
			f(&r)
			h.rows[id] = r
		}
	}
	arrives := func(r reception) func(h *history) {
		return func(h *history) { h.receptions = append(h.receptions, r) }
	}
	late := sound().receptions[4].At
	const kept, onlyCommitted, everyCommitted, identity, order, marks, counted, reasons, bounds, taken, states = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
	for name, tt := range map[string]struct {
		harm func(h *history)
		laws []int
	}{
		"the table lost a committed row that had arrived":   {func(h *history) { delete(h.rows, "a-2") }, []int{kept}},
		"a rolled back row is in the table":                 {func(h *history) { h.rows["a-3"] = row{id: "a-3", state: "published"} }, []int{kept}},
		"a row of nobody is in the table":                   {func(h *history) { h.rows["x"] = row{id: "x", state: "published"} }, []int{kept}},
		"a rolled back row arrives":                         {arrives(reception{ID: "a-3", Key: "a", N: 6, Delivery: 1, At: late}), []int{onlyCommitted, identity}},
		"a row that was not committed after all arrives":    {arrives(reception{ID: "b-1", Key: "b", N: 1, Delivery: 1, At: late}), []int{onlyCommitted}},
		"a row of nobody arrives":                           {arrives(reception{ID: "x", Delivery: 1, At: late}), []int{onlyCommitted}},
		"a committed row never arrives":                     {func(h *history) { h.receptions = slices.Delete(h.receptions, 3, 4) }, []int{everyCommitted}},
		"one whose commit was not answered never arrives":   {func(h *history) { h.receptions = h.receptions[:4] }, []int{everyCommitted}},
		"one without a key never arrives":                   {func(h *history) { h.receptions = slices.Delete(h.receptions, 1, 2) }, []int{everyCommitted}},
		"a row arrives with another's payload":              {func(h *history) { h.receptions[1].N = 2 }, []int{identity}},
		"a row arrives with another's key":                  {func(h *history) { h.receptions[4].Key = "b" }, []int{identity}},
		"a poisoned row arrives":                            {arrives(reception{ID: "a-4", Key: "a", N: 4, Delivery: 1, At: late}), []int{identity, order}},
		"two rows of a key change places":                   {func(h *history) { h.receptions[3], h.receptions[4] = h.receptions[4], h.receptions[3] }, []int{order}},
		"a repeat has no mark":                              {func(h *history) { h.receptions[2].Marked = false }, []int{marks}},
		"a first send has a mark":                           {func(h *history) { h.receptions[1].Marked = true }, []int{marks}},
		"a repeat is taken for the first send":              {func(h *history) { h.receptions[2].Marked, h.receptions[2].Delivery = false, 1 }, []int{marks}},
		"a send's number comes twice":                       {func(h *history) { h.receptions[0].Marked, h.receptions[0].Delivery = true, 2 }, []int{marks}},
		"the table has not counted a send":                  {change("a-1", func(r *row) { r.deliveries = 1 }), []int{counted}},
		"a row comes again and nothing broke":               {func(h *history) { h.accidents = nil }, []int{reasons, bounds}},
		"a row comes again beside a shutdown in good order": {func(h *history) { h.accidents = h.accidents[:1] }, []int{reasons, bounds}},
		"a row comes again long after an accident": {func(h *history) {
			h.receptions[0].At, h.receptions[2].At = late.Add(time.Minute), late.Add(2*time.Minute)
		}, []int{reasons}},
		"a row comes again before the accident":               {func(h *history) { h.accidents[1].began, h.accidents[1].ended = late, late.Add(time.Second) }, []int{reasons}},
		"a kill repeats more than was on its way":             {func(h *history) { h.fleet.records = 0 }, []int{reasons, bounds}},
		"a partition waits for longer than a lease":           {func(h *history) { h.takeovers[0].done = late }, []int{taken}},
		"a partition is never taken":                          {func(h *history) { h.takeovers[0].done, h.takeovers[0].over = late, false }, []int{taken}},
		"a row is pending":                                    {change("a-2", func(r *row) { r.state = "pending" }), []int{states}},
		"a row is held":                                       {change("a-2", func(r *row) { r.state = "held" }), []int{states}},
		"a row that did nothing is dead":                      {change("a-2", func(r *row) { r.state = "dead" }), []int{states}},
		"a poisoned row is published":                         {change("a-4", func(r *row) { r.state = "published" }), []int{states}},
		"a batch is announced and nobody is there to send it": {func(h *history) { h.announced = []string{"batch 1"} }, []int{states}},
	} {
		t.Run(name, func(t *testing.T) {
			h := sound()
			tt.harm(h)
			want := map[string]bool{}
			for _, i := range tt.laws {
				want[laws()[i].name] = true
			}
			got := map[string]bool{}
			for _, v := range h.check() {
				got[v.law] = true
				if !want[v.law] {
					t.Errorf("unexpected: %+v", v)
				}
			}
			for law := range want {
				if !got[law] {
					t.Errorf("nobody noticed: %s", law)
				}
			}
		})
	}
}

// TestExcusesOfTakeovers: what may make a takeover take longer, and by how much; and what is no excuse, above all what broke
// when it should have been over.
func TestExcusesOfTakeovers(t *testing.T) {
	kill := sound().takeovers[0].killed
	due := time.Second + pollMax + grain
	for name, tt := range map[string]struct {
		harm   func(h *history)
		took   time.Duration
		broken bool
	}{
		"as long as is allowed": {func(*history) {}, due, false},
		"a little longer":       {func(*history) {}, due + time.Millisecond, true},
		"the database was killed meanwhile": {func(h *history) {
			h.accidents[0] = accident{what: databaseKill, began: kill.Add(time.Second), ended: kill.Add(2 * time.Second)}
		}, 9 * time.Second, false},
		"the database was back just before": {func(h *history) {
			h.accidents[0] = accident{what: databaseKill, began: kill.Add(-2 * time.Second), ended: kill.Add(-calmBefore / 3)}
		}, 9 * time.Second, false},
		"the database was killed after that": {func(h *history) {
			h.accidents[0] = accident{what: databaseKill, began: kill.Add(due + time.Second), ended: kill.Add(9 * time.Second)}
		}, 9 * time.Second, true},
		"another daemon was killed after that": {func(h *history) {
			h.accidents[0] = accident{what: daemonKill, began: kill.Add(due + time.Second), ended: kill.Add(9 * time.Second)}
		}, 9 * time.Second, true},
		"another daemon was killed too": {func(h *history) {
			h.accidents[0] = accident{what: daemonKill, began: kill.Add(time.Second), ended: kill.Add(2 * time.Second)}
		}, 9 * time.Second, false},
		"the destination was away": {func(h *history) {
			h.accidents[0] = accident{what: targetKill, began: kill, ended: kill.Add(9 * time.Second)}
		}, 9 * time.Second, true},
		"a daemon was not there yet":          {func(h *history) { h.takeovers[0].ready = false }, 9 * time.Second, false},
		"one daemon at a time has a sink":     {func(h *history) { h.fleet.shares = false }, 9 * time.Second, false},
		"the machine stood still for a while": {func(h *history) { h.late = []lateness{{kill, 600 * time.Millisecond}} }, due + 1800*time.Millisecond, false},
		"it stood still for less than that":   {func(h *history) { h.late = []lateness{{kill, 600 * time.Millisecond}} }, due + 1801*time.Millisecond, true},
		"it stood still before":               {func(h *history) { h.late = []lateness{{kill.Add(-time.Second), 600 * time.Millisecond}} }, due + time.Millisecond, true},
		"the clock had jumped back": {func(h *history) {
			h.accidents[0] = accident{what: clockBack, began: kill.Add(-time.Second / 2), lasts: 2 * time.Second}
		}, due + 2*time.Second, false},
		"by less than that": {func(h *history) {
			h.accidents[0] = accident{what: clockBack, began: kill.Add(-time.Second / 2), lasts: time.Second}
		}, due + 2*time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := sound()
			h.takeovers[0].done = kill.Add(tt.took)
			tt.harm(h)
			c := &checker{history: h}
			if c.taken(); (len(c.violations) > 0) != tt.broken {
				t.Errorf("a violation: %+v", c.violations)
			}
		})
	}
}

// TestBoundOfOneKill: what nothing else explains must have been on its way when the daemon was killed.
func TestBoundOfOneKill(t *testing.T) {
	h := sound()
	for i := range 3 { // a kill of one daemon explains two
		id := string(rune('p' + i))
		h.facts = append(h.facts, fact{ID: id, N: i, End: committed})
		h.rows[id] = row{id: id, state: "published", deliveries: 2}
		h.receptions = append(h.receptions,
			reception{ID: id, N: i, Delivery: 1, At: h.receptions[0].At},
			reception{ID: id, N: i, Delivery: 2, Marked: true, At: h.receptions[2].At})
	}
	broken := h.check()
	if len(broken) != 2 || broken[0].law != laws()[8].name || broken[1].law != laws()[8].name {
		t.Errorf("%+v, want the kill's bound and the sum's", broken)
	}
}

// TestStory: whoever looks for a bug needs all there is about a row.
func TestStory(t *testing.T) {
	h := sound()
	h.attempts = map[int64][]string{1: {"after 1 sends: unknown: the plugin died"}}
	story := h.story("a-1")
	for _, part := range []string{`key "a"`, "state:published", "the plugin died", "send 1, marked false", "send 2, marked true", string(daemonKill)} {
		if !strings.Contains(story, part) {
			t.Errorf("%q is missing in\n%s", part, story)
		}
	}
}
