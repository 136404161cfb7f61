package rabbitmq

import (
	"encoding/json"
	"testing"
)

// BenchmarkCompose makes a message of a row of 1 KB.
func BenchmarkCompose(b *testing.B) {
	settings := must(json.Marshal(map[string]any{"urls": []string{"amqp://localhost"}, "exchange": "shop", "routing_key": "{type}"}))
	_, made, _ := parse(settings, Options{Connector: "orders"})
	r := order()
	r.Payload = make([]byte, 1000)
	b.ReportAllocs()
	for b.Loop() {
		if _, outcome := made.compose(&r); outcome != nil {
			b.Fatal(outcome)
		}
	}
}
