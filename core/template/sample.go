package template

import (
	"regexp"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
)

// headerFields finds the headers that texts name.
var headerFields = regexp.MustCompile(`\{header:([^}|]+)`)

// Sample is a record that has every field the texts of templates can name, each with the same value: what cannot be made of
// it cannot be made of any record.
func Sample(value string, texts ...string) core.Record {
	r := core.Record{
		ID: value, Key: value, Keyed: true, Route: value, Type: value, Payload: []byte(`{}`),
		CreatedAt: time.Unix(0, 0), Seq: 1, Deliveries: 1, Epoch: 1,
	}
	for _, m := range headerFields.FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
		r.Headers = append(r.Headers, core.Header{Name: m[1], Value: value})
	}
	return r
}
