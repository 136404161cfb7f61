package rabbitmq

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/plugins"
)

// serveArg makes this test binary serve the sink.
const serveArg = "serve-sink"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveArg {
		plugins.Serve(New(plugins.Logger(), Options{Connector: plugins.Connector(), Version: "test"}))
		return
	}
	goleak.VerifyTestMain(m)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
