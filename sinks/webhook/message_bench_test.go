package webhook

import (
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

func BenchmarkMessage(b *testing.B) {
	r := order()
	r.Payload = []byte(`{"text":"` + strings.Repeat("x", 1000) + `"}`)
	batch, which := []core.Record{r}, []int{0}
	for name, settings := range map[string]string{
		"payload": `{"url":"https://example.com/hook","signing":{"secrets":[{"value":"` + signingKey + `"}]}}`,
		"url of rows": `{"url":"https://example.com/{route}/{key}?type={type}","headers":{"X-Tenant":"{header:tenant}"},
			"signing":{"secrets":[{"value":"` + signingKey + `"}]}}`,
		"structured event": `{"url":"https://example.com/hook","body":"ce_structured"}`,
		"template":         `{"url":"https://example.com/hook","body":"template","body_template":"{\"id\":{{json .ID}},\"data\":{{.Payload}}}"}`,
	} {
		b.Run(name, func(b *testing.B) {
			c := composing(b, settings)
			b.ReportAllocs()
			for b.Loop() {
				m, outcome := c.compose(batch, which)
				if outcome != nil {
					b.Fatal(*outcome)
				}
				c.sign(m, time.Now())
			}
		})
	}
}
