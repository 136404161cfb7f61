package engine

import (
	"testing"
	"time"
)

// TestEveryRuleIsNeeded switches rules off one at a time: each must make the simulation fail, else it is dead weight or
// the simulation is blind. What broke is in the log.
func TestEveryRuleIsNeeded(t *testing.T) {
	base := scenario{workers: 2, partitions: 1, rows: 60, keys: 4, unkeyed: 0.1, rollback: 0.1}
	rules := []struct {
		name   string
		change func(*scenario)
	}{
		{"a key is in one batch at a time", func(sc *scenario) { sc.off.busy, sc.flaky = true, 0.2 }},
		{"rows of a key that waits are dropped as they are read", func(sc *scenario) { sc.off.behind, sc.flaky = true, 0.3 }},
		{"a key waits from its first row that is not due", func(sc *scenario) { sc.off.noteBehind, sc.flaky, sc.kills = true, 0.3, 3 }},
		{"only rows above the blocking one are blocked", func(sc *scenario) {
			sc.off.blockAbove, sc.hold, sc.lostCall, sc.operators, sc.keys, sc.rows = true, true, 0.3, 4, 2, 120
		}},
		{"reads begin at the floor", func(sc *scenario) { sc.off.floor, sc.careless, sc.longTx, sc.keys = true, true, 0.5, 2 }},
		{"a read passes over the rows in memory", func(sc *scenario) { sc.off.known, sc.fail, sc.flaky = true, 0.05, 0.2 }},
		{"announced before it is sent", func(sc *scenario) { sc.off.announce, sc.kills, sc.fail = true, 4, 0.1 }},
		{"a step of unknown outcome is repeated", func(sc *scenario) { sc.off.repeat, sc.lost, sc.late, sc.kills, sc.flaky = true, 0.2, 0.2, 4, 0.4 }},
		{"a repeated announcement leaves a tombstone", func(sc *scenario) { sc.off.tombstone, sc.late, sc.kills, sc.flaky = true, 0.2, 6, 0.5 }},
		{"an unknown call is written down", func(sc *scenario) { sc.off.settleUnknown, sc.lostCall = true, 0.2 }},
		{"an answer sets crashes back", func(sc *scenario) {
			sc.off.resetCrashes, sc.flaky, sc.flakyFails, sc.crashCall, sc.seconds = true, 0.9, 0.9, 0.15, 200
		}},
		{"suspects are sent carefully", func(sc *scenario) { sc.off.gate, sc.killPlugin, sc.tables, sc.keys = true, 0.05, 2, 20 }},
		{"nothing runs beside a careful call", func(sc *scenario) {
			sc.off.gateShared, sc.killWorker, sc.tables, sc.partitions, sc.keys = true, 0.05, 2, 2, 20
		}},
		{"the gate is held until the settlement is confirmed", func(sc *scenario) {
			sc.off.gateEarly, sc.killWorker, sc.tables, sc.keys, sc.fail, sc.pluginKills = true, 0.06, 2, 20, 0.1, 4
		}},
		{"handed over when nothing is in flight", func(sc *scenario) {
			sc.off.handOver, sc.clean, sc.workers, sc.partitions, sc.joins, sc.drains = true, true, 3, 4, 3, 3
		}},
		{"nothing is sent past the local deadline", func(sc *scenario) { sc.off.deadline, sc.pauses, sc.fail, sc.workers = true, 10, 0.4, 3 }},
		{"the fence", func(sc *scenario) { sc.dbOff.fence, sc.pauses, sc.workers = true, 8, 3 }},
		{"a settlement looks at deliveries", func(sc *scenario) {
			sc.dbOff.guard, sc.bad, sc.lost, sc.late, sc.operators = true, 0.3, 0.1, 0.2, 60
		}},
		{"blocked keys are read before rows", func(sc *scenario) {
			sc.dbOff.blockFirst, sc.hold, sc.kills, sc.operators, sc.keys = true, true, 6, 60, 2
		}},
		{"a release leaves inflight rows alone", func(sc *scenario) {
			sc.dbOff.releaseClean, sc.off.handOver, sc.workers, sc.partitions, sc.joins, sc.drains = true, true, 3, 4, 3, 3
		}},
		{"rows given back in their order are read in it", func(sc *scenario) {
			sc.off.changes, sc.bad, sc.flaky, sc.operators, sc.keys, sc.rows = true, 0.4, 0.2, 60, 2, 120
		}},
		{"no page tells of changes to rows that it passed over", func(sc *scenario) {
			sc.off.stopped, sc.workers, sc.bad, sc.flaky, sc.lost, sc.operators, sc.eager, sc.keys, sc.rows = true, 1, 0.4, 0.2, 0.2, 60, 0.7, 2, 120
		}},
		{"a row that comes back once more is in doubt once more", func(sc *scenario) {
			sc.off.seenForEver, sc.bad, sc.operators, sc.eager, sc.keys, sc.rows = true, 0.3, 100, 0.7, 2, 120
		}},
		{"a stop that was not known when changes were told is looked after", func(sc *scenario) {
			sc.off.stopKnown, sc.workers, sc.bad, sc.operators, sc.eager, sc.keys, sc.rows, sc.readWithin = true, 1, 0.3, 100, 0.5, 4, 120, 11*time.Second
		}},
		{"a refused group leaves no lease in doubt but those refused alone", func(sc *scenario) {
			sc.off.refusedApart, sc.partitions, sc.expiries = true, 4, 20
		}},
		{"each partition of a group of unknown outcome repeats its change", func(sc *scenario) {
			sc.off.repeatAll, sc.partitions, sc.workers, sc.lost, sc.late, sc.flaky = true, 4, 1, 0.2, 0.2, 0.4
		}},
		{"all changes of a group or none", func(sc *scenario) {
			sc.dbOff.wholeGroup, sc.partitions, sc.pauses, sc.fail, sc.workers = true, 4, 10, 0.1, 3
		}},
		{"a timeout counts only when the sink is healthy", func(sc *scenario) {
			sc.hangAlways, sc.outageAt, sc.outage, sc.seconds, sc.timeout = true, 5*time.Second, 3*time.Minute, 200, time.Second
		}},
	}
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			sc := base
			sc.name = rule.name
			rule.change(&sc)
			seed, err := firstViolation(sc, 5000)
			if err == nil {
				t.Fatal("no seed fails without this rule")
			}
			t.Logf("without it, seed %d: %v", seed, err)
		})
	}
}
