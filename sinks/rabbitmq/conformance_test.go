package rabbitmq

import (
	"log/slog"
	"os"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/scripts/services/proxy"
	"github.com/connectd/connectd/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		h := harness(t, "quorum")
		h.Sink = New(slog.New(slog.DiscardHandler), Options{Connector: "orders", Version: "test"})
		return h
	})
}

func TestConformanceAsProcess(t *testing.T) {
	program := sinktest.Program{Path: os.Args[0], Args: []string{serveArg}, Env: []string{"GORACE=atexit_sleep_ms=0 halt_on_error=1"}}
	sinktest.Binary(t, program, func(t testing.TB) sinktest.Harness { return harness(t, "classic") })
}

// chosen is the header by which a record of the suite chooses another exchange.
const chosen = "exchange"

// harness is everything but the sink, around an exchange and a queue of the kind.
func harness(t testing.TB, kind string) sinktest.Harness {
	s := serverAt(t, services.RabbitMQ(t), services.RabbitMQManagement(t))
	s.exchange("shop", kind, nil)
	p := proxy.New(t, s.address, proxy.Bytes)
	var received []core.Record
	return sinktest.Harness{
		Settings: s.settings(p.Addr, `{"exchange":"{header:`+chosen+`|shop}","routing_key":"{type|}","on_missing_exchange":"permanent","max_message_bytes":"64MiB"}`),
		Secrets:  []string{s.password},
		BadSettings: []sinktest.BadSettings{
			{Settings: `{}`, Pointer: "/urls"},
			{Settings: `{"urls":["amqp://u:hunter2@localhost"]}`, Pointer: "/urls/0", Secret: "hunter2"},
			{Settings: `{"urls":["amqp://localhost"],"sasl":"hunter2"}`, Pointer: "/sasl", Secret: "hunter2"},
			{Settings: `{"urls":["amqp://localhost"],"password":"hunter2"}`, Pointer: "/username", Secret: "hunter2"},
		},
		Received: func(t testing.TB) []core.Record {
			for _, d := range s.take("shop") {
				received = append(received, read(t, d))
			}
			return received
		},
		Expect: sortHeaders,
		Refuse: func(r core.Record) core.Record {
			r.Headers = append([]core.Header{{Name: chosen, Value: "nowhere"}}, r.Headers...)
			return r
		},
		Outage: func(testing.TB) func() { return p.Away() },
		Hang:   func(testing.TB) func() { return p.Hang() },
	}
}
