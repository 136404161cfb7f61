//go:build linux

package chaos

import (
	"fmt"
	"strings"
	"time"
)

// pair is a source and a sink, and how many daemons share them.
type pair struct {
	source  string // sqlite, postgres, mysql or mariadb
	sink    string // file, webhook, kafka, rabbitmq, or killer: the harness' own
	daemons int
	clock   time.Duration // how far off the database's is; with one it also jumps
}

func (p pair) String() string { return p.source + "-" + p.sink }

// served says that the source is a server, with connections that can break.
func (p pair) served() bool { return p.source != "sqlite" }

// shares says that several daemons can write to the destination at once. A file has one writer; the other daemons have no
// sink, and so no leases, until theirs has found the file free, which it tries ever more seldom.
func (p pair) shares() bool { return p.sink != "file" }

// poisons are what can be wrong with a row. The file sink refuses no record.
func (p pair) poisons() []string {
	switch p.sink {
	case "file":
		return []string{unreadable}
	case "kafka", "rabbitmq":
		return []string{unreadable, refused, tooLarge}
	default:
		return []string{unreadable, refused}
	}
}

// killers are what is wrong with a few rows, one of each.
func (p pair) killers() []string {
	if p.sink == "killer" {
		return []string{crashing, hanging, crashing}
	}
	return nil
}

// shortPairs are those of `make test`, allPairs those of `make chaos`.
func shortPairs() []pair {
	return []pair{{"sqlite", "file", 2, 0}, {"postgres", "webhook", 3, 0}}
}

func allPairs() []pair {
	return append(shortPairs(),
		pair{"mysql", "webhook", 3, 0}, pair{"postgres", "kafka", 3, 10 * time.Minute}, pair{"mysql", "kafka", 2, 0},
		pair{"mariadb", "rabbitmq", 3, -10 * time.Minute}, pair{"postgres", "rabbitmq", 2, 0}, pair{"mariadb", "file", 2, 10 * time.Minute},
		pair{"sqlite", "killer", 2, 0})
}

// What the daemons are configured with. A lease and a timeout must be long for a busy machine, else rows are sent again
// because nobody ran.
const (
	lease          = 3 * time.Second
	pollMax        = 100 * time.Millisecond
	callTimeout    = 4 * time.Second
	requestTimeout = 2 * time.Second
	maxRecords     = 10
	inFlight       = 4
)

func (p pair) limits() limits {
	return limits{daemons: p.daemons, inFlight: inFlight, records: maxRecords, lease: lease, poll: pollMax, call: callTimeout, shares: p.shares()}
}

// Variables in which each daemon finds its own way to the servers.
const (
	sourceVariable = "CHAOS_SOURCE"
	targetVariable = "CHAOS_TARGET"
)

// yaml is the configuration of all daemons of a pair: one text, since a fleet shares it.
func (p pair) yaml(sink, pluginDir string) string {
	source := fmt.Sprintf(`plugin: sqlite, path: "${%s}"`, sourceVariable)
	if p.served() {
		source = fmt.Sprintf(`plugin: %s, dsn: "${%s}"`, strings.Replace(p.source, "mariadb", "mysql", 1), sourceVariable)
	}
	return fmt.Sprintf(`daemon: {http: off, plugin_dir: %q}
connectors:
  chaos:
    source: {%s, table: outbox, poll: {min: 10ms, max: %v}}
    sink: {%s}
    delivery:
      batch: {max_records: %d}
      in_flight: %d
      lease: %v
      timeout: %v
      retry: {initial: 50ms, max: 1s}
`, pluginDir, source, pollMax, sink, maxRecords, inFlight, lease, callTimeout)
}
