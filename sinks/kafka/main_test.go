package kafka

import (
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/plugins"
)

// serveArg makes this test binary serve the sink.
const serveArg = "serve-sink"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveArg {
		plugins.Serve(New(slog.Default(), Options{Connector: "orders", Version: "test"}))
		return
	}
	goleak.VerifyTestMain(m)
}
