//go:build linux

package chaos

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// receiver is a destination. It remembers everything that it took, in the order in which it did, for each key.
type receiver interface {
	yaml() string    // the sink's settings, with ${CHAOS_TARGET} where the way to it goes
	address() string // of the server; "" when there is none
	target(address string) string
	name() string // for the report
	// received is called once everything has been sent.
	received() ([]reception, error)
	// hinder breaks what can break at the destination itself and returns what mends it. errMissed: not here.
	hinder(how what) (mend func() error, err error)
}

// startReceiver starts the pair's destination, until the test ends.
func startReceiver(t *testing.T, p pair, dir string, total time.Duration) receiver {
	t.Helper()
	switch p.sink {
	case "webhook":
		return startWebhook(t, fmt.Sprintf(`plugin: webhook, url: "${%s}", timeouts: {connect: 1s, total: %v}`, targetVariable, requestTimeout))
	case "killer":
		return startWebhook(t, fmt.Sprintf(`plugin: killer, url: "${%s}", note: %q`, targetVariable, filepath.Join(dir, killerNotes)))
	case "file":
		return startFile(t, dir, total)
	case "kafka":
		return startKafka(t)
	case "rabbitmq":
		return startRabbit(t)
	default:
		t.Fatalf("there is no receiver for %s", p.sink)
		return nil
	}
}
