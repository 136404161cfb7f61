package engine

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var w3From = flag.Uint64("w3.from", 1, "")
var w3N = flag.Uint64("w3.n", 1000, "")
var w3Plain = flag.Bool("w3.plain", false, "")
var w3Eager = flag.Float64("w3.eager", -1, "")
var w3Live = flag.Bool("w3.live", false, "")
var w3Max = flag.Duration("w3.max", 4*time.Second, "")

func w3(seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 77))
	some := func(p, most float64) float64 {
		if r.Float64() < p {
			return r.Float64() * most
		}
		return 0
	}
	yes := func(p float64) bool { return r.Float64() < p }
	sc := scenario{name: "w3", workers: 1 + r.IntN(2), partitions: []int{1, 4}[r.IntN(2)], rows: 40 + r.IntN(100), keys: 1 + r.IntN(6),
		unkeyed: some(0.3, 0.3), batch: 1 + r.IntN(6), inFlight: 1 + r.IntN(4), hold: yes(0.4), block: yes(0.4),
		fail: some(0.4, 0.1), lost: some(0.6, 0.25), late: some(0.5, 0.15), lostCall: some(0.3, 0.1),
		kills: r.IntN(3), pluginKills: r.IntN(2), pauses: r.IntN(3), drains: r.IntN(2), joins: r.IntN(2), expiries: r.IntN(8),
		operators: 20 + r.IntN(150), throttle: some(0.2, 0.2), bad: some(0.8, 0.5), flaky: some(0.7, 0.4),
		longTx: some(0.3, 0.2), rollback: 0.1, eager: some(0.7, 0.9)}
	if sc.bad > 0 && sc.eager > 0.8 {
		sc.eager = 0.8
	}
	if yes(0.2) {
		sc.exclude = 1 + r.IntN(3)
	}
	if yes(0.1) {
		sc.awayAt, sc.away = time.Duration(r.IntN(20))*time.Second, time.Duration(r.IntN(20))*time.Second
	}
	return sc
}

func w3live(seed uint64) scenario {
	sc := w3(seed)
	sc.workers = 1
	sc.fail, sc.lost, sc.late, sc.lostCall, sc.kills, sc.pluginKills, sc.pauses, sc.drains, sc.joins, sc.expiries = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	sc.flaky, sc.throttle, sc.away, sc.longTx, sc.exclude = 0, 0, 0, 0, 0
	sc.clean = false
	if *w3Plain {
		sc.hold, sc.block = false, false
	}
	if *w3Eager >= 0 {
		sc.eager = *w3Eager
	}
	sc.maxGiven, sc.quietOps, sc.batch, sc.inFlight = *w3Max, true, 64, 4
	return sc
}

func TestW3(t *testing.T) {
	began := time.Now()
	bad := 0
	for seed := *w3From; seed < *w3From+*w3N; seed++ {
		sc := w3(seed)
		if *w3Live {
			sc = w3live(seed)
		}
		if err := newSim(sc, seed).run(); err != nil {
			t.Errorf("seed %d: %v\n%+v", seed, err, sc)
			if bad++; bad > 5 {
				return
			}
		}
	}
	t.Log(time.Since(began))
}

func (s *sim) pollGiven() {
	s.after(200*time.Millisecond, s.pollGiven)
	lowest := map[string]int64{}
	for id, h := range s.rows {
		row, _ := s.tables[id.table].Row(id.seq)
		if h.key != "" && (row.State == "held" || row.State == "dead" && s.sc.block) {
			if at, ok := lowest[h.key]; !ok || id.seq < at {
				lowest[h.key] = id.seq
			}
		}
	}
	for id, h := range s.rows {
		if h.givenAt == 0 {
			continue
		}
		row, _ := s.tables[id.table].Row(id.seq)
		at, blocked := lowest[h.key]
		if row.State != "pending" || blocked && id.seq > at {
			if blocked && id.seq > at {
				h.givenAt = s.now
			}
			continue
		}
		in := false
		for _, w := range s.workers {
			for _, p := range w.conns[id.table].m.parts {
				if p.rows[id.seq] != nil || p.behind[h.key] == whenRoom {
					in = true
				}
			}
		}
		if in {
			h.givenAt = 0
		} else if s.now-h.givenAt > s.sc.maxGiven {
			s.fail("W3: row %d of key %q given back at %v is not read %v later; %s", id.seq, h.key, h.givenAt, s.now-h.givenAt, s.w3state(id, h))
		}
	}
}

func (s *sim) w3state(id rowID, h *history) string {
	out := ""
	row, _ := s.tables[id.table].Row(id.seq)
	for _, w := range s.workers {
		m := w.conns[id.table].m
		for _, p := range m.parts {
			if p.lease.Part != row.Part {
				continue
			}
			until, behind := p.behind[h.key]
			block, isb := p.blocked[h.key]
			out += fmt.Sprintf("[behind %v %v blocked %v %v pos %d high %d changes %d m.changes %d scanning %v reading %v scanAt %v next %v again %v mem %v ks %+v valve %q step %v batches %d pulseAt %v]", behind, until, isb, block, p.pos, p.high, p.told, m.changes, p.scanning, p.reading, p.scanAt, p.nextRead, p.readAgain, p.memory, p.keys[h.key], m.valve.reason, p.step != nil, len(p.batches), m.pulseAt)
		}
	}
	return out
}
