package mysqlfile

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/examples/exampletest"
	"github.com/connectd/connectd/scripts/services"
)

// TestRun runs the example as its reader does, on a database of its own on each kind of server.
func TestRun(t *testing.T) {
	for kind, server := range map[string]func(testing.TB) string{"mysql": services.MySQL, "mariadb": services.MariaDB} {
		t.Run(kind, func(t *testing.T) { run(t, kind, exampletest.MySQLDatabase(t, server(t))) })
	}
}

func run(t *testing.T, kind, dsn string) {
	out := exampletest.Run(t, []string{"FLOW_DSN=" + dsn}, kind)
	exampletest.Want(t, out, "commands: ok", "ADD COLUMN `state`", "have not been sent", "reserve of r3: rolled back", "running")
	arrived := map[string][]string{}
	for line := range strings.Lines(out) {
		var command struct {
			ID, Key string
			Payload struct{ Run string }
			Created time.Time `json:"created_at"`
		}
		if !strings.HasPrefix(line, `{"id":`) {
			continue
		}
		if err := json.Unmarshal([]byte(line), &command); err != nil {
			t.Errorf("%v in %s", err, line)
		}
		if command.Payload.Run != command.Key || time.Since(command.Created) > time.Hour {
			t.Errorf("a line is not as the row was: %s", line)
		}
		arrived[command.Key] = append(arrived[command.Key], command.ID)
	}
	for key, want := range map[string][]string{
		"r1": {"r1-ship"}, // the others had been sent before
		"r2": {"r2-reserve", "r2-charge", "r2-ship"},
		"r3": nil, // never committed
	} {
		if !slices.Equal(arrived[key], want) {
			t.Errorf("of %s arrived %v, want %v\n%s", key, arrived[key], want, out)
		}
	}
}
