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
	sink    string // file or webhook
	daemons int
}

func (p pair) String() string { return p.source + "-" + p.sink }

// served says that the source is a server, with connections that can break.
func (p pair) served() bool { return p.source != "sqlite" }

// poisons are what can be wrong with a row. The file sink refuses no record.
func (p pair) poisons() []string {
	if p.sink == "file" {
		return []string{unreadable}
	}
	return []string{unreadable, refused}
}

// shortPairs are those of `make test`, allPairs those of `make chaos`.
func shortPairs() []pair {
	return []pair{{"sqlite", "file", 2}, {"postgres", "webhook", 3}}
}

func allPairs() []pair {
	return append(shortPairs(), pair{"sqlite", "webhook", 2}, pair{"mysql", "webhook", 3}, pair{"mariadb", "webhook", 3}, pair{"postgres", "file", 2})
}

// What the daemons are configured with. A lease and a timeout must be long for a busy machine, else rows are sent again
// because nobody ran.
const (
	lease          = 3 * time.Second
	callTimeout    = 4 * time.Second
	requestTimeout = 2 * time.Second
	maxRecords     = 10
	inFlight       = 4
)

func (p pair) limits() limits {
	return limits{daemons: p.daemons, inFlight: inFlight, records: maxRecords, lease: lease, call: callTimeout}
}

// Variables in which each daemon finds its own way to the servers.
const (
	sourceVariable = "CHAOS_SOURCE"
	targetVariable = "CHAOS_TARGET"
)

// yaml is the configuration of all daemons of a pair: one text, since a fleet shares it.
func (p pair) yaml(sink string) string {
	source := fmt.Sprintf(`plugin: sqlite, path: "${%s}"`, sourceVariable)
	if p.served() {
		source = fmt.Sprintf(`plugin: %s, dsn: "${%s}"`, strings.Replace(p.source, "mariadb", "mysql", 1), sourceVariable)
	}
	return fmt.Sprintf(`daemon: {http: off}
connectors:
  chaos:
    source: {%s, table: outbox, poll: {min: 10ms, max: 100ms}}
    sink: {%s}
    delivery:
      batch: {max_records: %d}
      in_flight: %d
      lease: %v
      timeout: %v
      retry: {initial: 50ms, max: 1s}
`, source, sink, maxRecords, inFlight, lease, callTimeout)
}
