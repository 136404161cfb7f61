package engine

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// scenario says what a run is made of. Probabilities are per call, per record or per row.
type scenario struct {
	name                        string
	workers, partitions, tables int
	rows, keys                  int // per table
	unkeyed                     float64
	seconds                     int // of faults and producers
	batch, inFlight             int
	exclude                     int // keys named to the source; 0: as in production
	hold, block, unordered      bool
	timeout                     time.Duration

	fail, lost, late, lostCall       float64 // the database's and the sink's calls
	kills, pluginKills               int
	pauses, drains, joins, operators int

	eager            float64       // how often a person gives back at once what stopped
	readWithin       time.Duration // if not 0, what is given back must be read within it; nothing is slow then
	expiries         int           // of single leases, before their time
	throttle         float64
	sinkScope        float64       // of the refusals of flaky rows
	oneByOne         bool          // as a sink prefers it that sends record by record
	outageAt, outage time.Duration // of the sink
	awayAt, away     time.Duration // of the database: every call fails at once
	refusing         bool          // during the outage each record is refused, instead of the call failing

	crashCall                                       float64 // the plugin dies in a call for reasons of its own
	flakyFails                                      float64 // how often a flaky row fails; 0: 0.7
	bad, flaky, killPlugin, killWorker, hang, spoil float64 // rows
	rollback, longTx                                float64
	careless, early                                 bool // producers

	strikeAt   int    // before this event, strike
	strike     string // "kill", "pause" (the clock runs on), "stop" (with its clock)
	fateAt     int    // this writing call of the database
	fate       string // "failed", "lost" (done, its answer lost), "late" (failed, done after its repeat)
	clean      bool   // nothing fails: no row may be sent twice
	off        rulesOff
	dbOff      dbOff
	hangAlways bool // a timeout counts as a crash also when the sink is down
}

func (sc scenario) length() time.Duration {
	if sc.seconds == 0 {
		return 40 * time.Second
	}
	return time.Duration(sc.seconds) * time.Second
}

func (sc scenario) slow() time.Duration { return 2 * sc.policy().Lease }

func (sc scenario) policy() Policy {
	p := DefaultPolicy()
	p.Ordered = !sc.unordered
	p.MaxRecords, p.InFlight = 4, 3
	if sc.batch > 0 {
		p.MaxRecords = sc.batch
	}
	if sc.inFlight > 0 {
		p.InFlight = sc.inFlight
	}
	if sc.oneByOne {
		p.MaxRecords, p.InFlight = 0, 0
	}
	p.Lease, p.Timeout = 6*time.Second, 3*time.Second
	if sc.timeout > 0 {
		p.Timeout = sc.timeout
	}
	p.PollMin, p.PollMax = 100*time.Millisecond, 2*time.Second
	p.Retry.Initial, p.Retry.Max = 200*time.Millisecond, 10*time.Second
	p.BlockOnDead, p.HoldUncertain = sc.block, sc.hold
	return p
}

func (sc scenario) prefers() core.Preferences {
	if sc.oneByOne {
		return core.Preferences{MaxRecords: 1, InFlight: 6}
	}
	return core.Preferences{}
}

func (sc scenario) fails() float64 {
	if sc.flakyFails > 0 {
		return sc.flakyFails
	}
	return 0.7
}

// harmless reports whether nothing in the scenario ever dies.
func (sc scenario) harmless() bool {
	return sc.kills+sc.pluginKills+sc.pauses+sc.drains == 0 && sc.killPlugin+sc.killWorker+sc.hang+sc.crashCall == 0
}

// scenarios are what the engine must survive.
func scenarios() []scenario {
	base := scenario{workers: 2, partitions: 4, rows: 50, keys: 8, unkeyed: 0.2, rollback: 0.1}
	with := func(name string, change func(*scenario)) scenario {
		sc := base
		sc.name = name
		change(&sc)
		return sc
	}
	return []scenario{
		with("no faults", func(sc *scenario) {}),
		with("failing calls", func(sc *scenario) { sc.fail, sc.lost, sc.late, sc.lostCall, sc.operators = 0.1, 0.1, 0.05, 0.05, 10 }),
		with("crashes", func(sc *scenario) { sc.kills, sc.pluginKills, sc.fail = 4, 1, 0.02 }),
		with("crashes, hold", func(sc *scenario) { sc.kills, sc.pluginKills, sc.hold, sc.operators = 3, 1, true, 40 }),
		with("pauses", func(sc *scenario) { sc.workers, sc.pauses, sc.lost, sc.late = 3, 8, 0.03, 0.03 }),
		with("pauses, hold", func(sc *scenario) { sc.pauses, sc.hold, sc.operators, sc.late = 6, true, 30, 0.03 }),
		with("late commits", func(sc *scenario) { sc.longTx, sc.rows, sc.flaky = 0.3, 80, 0.1 }),
		with("seqs taken early", func(sc *scenario) { sc.early, sc.longTx, sc.kills = true, 0.2, 1 }),
		with("careless producers", func(sc *scenario) { sc.careless, sc.longTx = true, 0.2 }),
		with("refusals", func(sc *scenario) { sc.flaky, sc.bad, sc.throttle, sc.operators = 0.3, 0.1, 0.1, 10 }),
		with("refusals, block", func(sc *scenario) { sc.flaky, sc.bad, sc.block, sc.operators = 0.2, 0.1, true, 30 }),
		with("refusals, hold", func(sc *scenario) { sc.flaky, sc.hold, sc.operators, sc.lost, sc.late = 0.3, true, 40, 0.1, 0.05 }),
		with("refusals, all given back", func(sc *scenario) {
			sc.bad, sc.flaky, sc.operators, sc.keys, sc.rows, sc.lost, sc.kills = 0.4, 0.2, 60, 3, 120, 0.02, 1
		}),
		with("refusals, given back at once", func(sc *scenario) {
			sc.bad, sc.flaky, sc.operators, sc.eager, sc.keys, sc.rows, sc.lost, sc.late, sc.kills = 0.4, 0.2, 60, 0.7, 3, 120, 0.1, 0.05, 1
		}),
		with("refusals, given back at once, hold, block", func(sc *scenario) {
			sc.bad, sc.lostCall, sc.operators, sc.eager, sc.keys, sc.hold, sc.block, sc.lost = 0.3, 0.1, 60, 0.7, 3, true, true, 0.1
		}),
		with("given back and read soon", func(sc *scenario) {
			sc.workers, sc.bad, sc.operators, sc.eager, sc.keys, sc.rows, sc.readWithin = 1, 0.3, 100, 0.5, 4, 120, 11*time.Second
		}),
		with("given back and read soon, block", func(sc *scenario) {
			sc.workers, sc.bad, sc.block, sc.operators, sc.eager, sc.keys, sc.rows, sc.readWithin = 1, 0.3, true, 100, 0.5, 4, 120, 11*time.Second
		}),
		with("killers of the plugin", func(sc *scenario) { sc.killPlugin, sc.tables, sc.keys = 0.04, 2, 20 }),
		with("killers of the worker", func(sc *scenario) { sc.killWorker, sc.tables, sc.rows, sc.seconds = 0.03, 2, 40, 90 }),
		with("hanging records", func(sc *scenario) { sc.hang, sc.keys = 0.04, 20 }),
		with("killers and refusals", func(sc *scenario) {
			sc.killPlugin, sc.hang, sc.flaky, sc.bad, sc.lost, sc.operators = 0.02, 0.02, 0.2, 0.05, 0.03, 10
		}),
		with("records that fail every call", func(sc *scenario) { sc.spoil, sc.keys, sc.batch, sc.flaky = 0.05, 20, 64, 0.1 }),
		with("outage", func(sc *scenario) {
			sc.outageAt, sc.outage, sc.seconds, sc.flaky = 5*time.Second, 30*time.Second, 60, 0.1
		}),
		with("outage, refusing", func(sc *scenario) {
			sc.outageAt, sc.outage, sc.seconds, sc.refusing = 5*time.Second, 30*time.Second, 60, true
		}),
		with("database away", func(sc *scenario) {
			sc.awayAt, sc.away, sc.seconds, sc.lost, sc.flaky, sc.hold = 5*time.Second, 25*time.Second, 60, 0.05, 0.1, true
		}),
		with("comings and goings", func(sc *scenario) { sc.workers, sc.partitions, sc.joins, sc.drains, sc.fail = 3, 5, 3, 4, 0.03 }),
		with("rolling restarts", func(sc *scenario) {
			sc.clean, sc.workers, sc.partitions, sc.joins, sc.drains, sc.rows = true, 3, 4, 3, 3, 100
		}),
		with("more keys wait than can be named", func(sc *scenario) {
			sc.exclude, sc.longTx, sc.flaky, sc.keys, sc.rows, sc.unkeyed = 2, 0.3, 0.4, 20, 80, 0.3
		}),
		with("one record a call", func(sc *scenario) {
			sc.oneByOne, sc.rows, sc.keys, sc.flaky, sc.throttle, sc.sinkScope, sc.kills, sc.pluginKills, sc.lost = true, 80, 20, 0.2, 0.05, 0.1, 1, 1, 0.05
		}),
		with("one record a call, outage, refusing", func(sc *scenario) {
			sc.oneByOne, sc.rows, sc.keys, sc.refusing, sc.outageAt, sc.outage, sc.seconds = true, 150, 100, true, 5*time.Second, 20*time.Second, 60
		}),
		with("many partitions a worker", func(sc *scenario) {
			sc.partitions, sc.rows, sc.expiries, sc.pauses, sc.joins, sc.fail, sc.lost, sc.late, sc.flaky, sc.bad, sc.operators = 12, 150, 10, 4, 1, 0.03, 0.08, 0.08, 0.1, 0.05, 10
		}),
		with("many partitions a worker, hold", func(sc *scenario) {
			sc.partitions, sc.rows, sc.pauses, sc.kills, sc.lost, sc.late, sc.lostCall, sc.hold, sc.operators = 12, 150, 4, 2, 0.05, 0.05, 0.03, true, 60
		}),
		with("unordered", func(sc *scenario) { sc.unordered, sc.flaky, sc.kills, sc.lost = true, 0.3, 2, 0.05 }),
	}
}

// anything is a scenario drawn from the seed: all of it at once.
func anything(seed uint64) scenario {
	r := rand.New(rand.NewPCG(seed, 3))
	some := func(p, most float64) float64 {
		if r.Float64() < p {
			return r.Float64() * most
		}
		return 0
	}
	yes := func(p float64) bool { return r.Float64() < p }
	sc := scenario{
		name: "anything", workers: 1 + r.IntN(3), partitions: 1 + r.IntN(6), tables: 1 + r.IntN(2), rows: 20 + r.IntN(50),
		keys: 1 + r.IntN(12), unkeyed: some(0.7, 0.4), batch: 1 + r.IntN(5), inFlight: 1 + r.IntN(4),
		hold: yes(0.3), block: yes(0.3), unordered: yes(0.1),
		fail: some(0.5, 0.15), lost: some(0.5, 0.15), late: some(0.5, 0.1), lostCall: some(0.5, 0.1),
		kills: r.IntN(4), pluginKills: r.IntN(2), pauses: r.IntN(5), drains: r.IntN(3), joins: r.IntN(2), operators: r.IntN(30),
		throttle: some(0.3, 0.2), bad: some(0.3, 0.1), flaky: some(0.5, 0.4), killPlugin: some(0.2, 0.03), hang: some(0.2, 0.02), spoil: some(0.1, 0.04),
		killWorker: some(0.1, 0.02), rollback: some(0.5, 0.3), longTx: some(0.4, 0.3), careless: yes(0.1), early: yes(0.2),
	}
	sc.oneByOne, sc.sinkScope = yes(0.15), some(0.3, 0.3)
	if yes(0.2) {
		sc.exclude = 1 + r.IntN(3)
	}
	if yes(0.2) {
		sc.awayAt, sc.away = time.Duration(r.IntN(20))*time.Second, time.Duration(r.IntN(20))*time.Second
	}
	if yes(0.2) {
		sc.outageAt, sc.outage = time.Duration(r.IntN(20))*time.Second, time.Duration(r.IntN(30))*time.Second
		sc.refusing = yes(0.3)
	}
	return sc
}

var (
	simSeed  = flag.Uint64("sim.seed", 0, "replay this seed of the simulation only (with -sim.name)")
	simName  = flag.String("sim.name", "", "the scenario to replay")
	simSeeds = flag.Int("sim.seeds", defaultSeeds, "seeds of the simulation, over all scenarios")
)

// TestSimulation runs every scenario over its part of the seeds.
func TestSimulation(t *testing.T) {
	all := scenarios()
	if *simSeed != 0 {
		replay(t, all)
		return
	}
	each := *simSeeds / (2 * len(all))
	for _, sc := range all {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			soak(t, each, func(uint64) scenario { return sc })
		})
	}
	t.Run("anything", func(t *testing.T) {
		t.Parallel()
		soak(t, *simSeeds/2, anything)
	})
}

func replay(t *testing.T, all []scenario) {
	sc := anything(*simSeed)
	for _, named := range all {
		if named.name == *simName {
			sc = named
		}
	}
	if err := newSim(sc, *simSeed).run(); err != nil {
		t.Fatalf("%s, seed %d: %v", sc.name, *simSeed, err)
	}
}

func soak(t *testing.T, n int, draw func(seed uint64) scenario) {
	for seed := uint64(1); seed <= uint64(n); seed++ {
		sc := draw(seed)
		if err := newSim(sc, seed).run(); err != nil {
			t.Fatalf("%v\nreplay: go test ./core/engine -run TestSimulation -sim.name %q -sim.seed %d", err, sc.name, seed)
		}
	}
}

// firstViolation runs a scenario until a seed violates an invariant.
func firstViolation(sc scenario, seeds int) (uint64, error) {
	var found atomic.Pointer[string]
	var at atomic.Uint64
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for found.Load() == nil {
				seed := next.Add(1)
				if seed > uint64(seeds) {
					return
				}
				if err := newSim(sc, seed).run(); err != nil {
					text := err.Error()
					found.Store(&text)
					at.Store(seed)
				}
			}
		})
	}
	wg.Wait()
	if found.Load() == nil {
		return 0, nil
	}
	return at.Load(), fmt.Errorf("%s", *found.Load())
}
