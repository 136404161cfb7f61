package kafka

import (
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/scripts/services/proxy"
	"github.com/connectd/connectd/sinks/sinktest"
)

func TestConformance(t *testing.T) { sinktest.Run(t, inProcess(realBroker)) }

func TestConformanceAsProcess(t *testing.T) {
	program := sinktest.Program{Path: os.Args[0], Args: []string{serveArg}, Env: []string{"GORACE=atexit_sleep_ms=0 halt_on_error=1"}}
	sinktest.Binary(t, program, realBroker)
}

func inProcess(start func(t testing.TB) sinktest.Harness) func(t testing.TB) sinktest.Harness {
	return func(t testing.TB) sinktest.Harness {
		h := start(t)
		h.Sink = New(slog.New(slog.NewTextHandler(t.Output(), nil)), Options{Connector: "orders", Version: "test"})
		return h
	}
}

// tenYears is in milliseconds, as topics' settings are.
const tenYears = "315360000000"

// realBroker is everything but the sink, around a topic of its own on the real broker, which a proxy can take away.
func realBroker(t testing.TB) sinktest.Harness {
	brokers := services.Kafka(t)
	k := newTopic(t, brokers, 3, map[string]string{
		"max.message.bytes": "67108864", "message.timestamp.before.max.ms": tenYears, "message.timestamp.after.max.ms": tenYears,
	})
	p := proxy.New(t, brokers[0], proxy.Kafka)
	return sinktest.Harness{
		Settings:    fmt.Appendf(nil, `{"brokers": [%q], "topic": %q, "max_batch_bytes": "64MiB"}`, p.Addr, k.name),
		BadSettings: badSettings(),
		Received:    k.records,
		Refuse: func(r core.Record) core.Record {
			r.CreatedAt = time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC) // longer ago than the topic takes
			return r
		},
		Outage: func(testing.TB) func() { return p.Away() },
		Hang:   func(testing.TB) func() { return p.Hang() },
	}
}

func badSettings() []sinktest.BadSettings {
	return []sinktest.BadSettings{
		{Settings: `{}`, Pointer: "/brokers"},
		{Settings: `{"brokers":["u:hunter2@kafka:9092"],"topic":"t"}`, Pointer: "/brokers/0", Secret: "hunter2"},
		{Settings: `{"brokers":["kafka:9092"],"topic":"hunter2 "}`, Pointer: "/topic", Secret: "hunter2"},
		{Settings: `{"brokers":["kafka:9092"],"topic":"t","acks":"hunter2"}`, Pointer: "/acks", Secret: "hunter2"},
		{Settings: `{"brokers":["kafka:9092"],"topic":"t","sasl":{"mechanism":"PLAIN","password":"hunter2"}}`, Pointer: "/sasl/username", Secret: "hunter2"},
	}
}
