package webhook

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/cloudevents"
)

// The values of the setting body.
const (
	bodyPayload      = "payload"
	bodyTemplate     = "template"
	bodyCEStructured = "ce_structured"
	bodyCEBinary     = "ce_binary"
	bodyCEBatch      = "ce_batch"
)

// The formats of several rows.
const (
	formatJSON   = "json"
	formatNDJSON = "ndjson"
)

const headerContentType = "Content-Type"

// body makes the body of a message that carries one record on its own, and sets the headers that say what it is.
func (c *composer) body(h http.Header, r *core.Record) ([]byte, error) {
	contentType, err := c.contentType(r)
	if err != nil {
		return nil, err
	}
	h[headerContentType] = []string{contentType}
	switch c.config.Body {
	case bodyTemplate:
		return c.template.render(r)
	case bodyCEBinary:
		return r.Payload, c.eventHeaders(h, r)
	case bodyCEStructured:
		h[headerContentType] = []string{cloudevents.JSON}
		return c.events.AppendJSON(nil, r, contentType)
	default:
		return r.Payload, nil
	}
}

// tooLarge is the outcome of a record that a body of max_body_bytes cannot hold.
func (c *composer) tooLarge(size int) *core.Outcome {
	return unsendable("too_large", fmt.Errorf("the body needs %d bytes, max_body_bytes is %d", size, c.config.MaxBodyBytes))
}

// compressed is the body as it is sent.
func (c *composer) compressed(h http.Header, body []byte) ([]byte, error) {
	if c.config.Compress != "gzip" {
		return body, nil
	}
	var b bytes.Buffer
	w, ok := c.zippers.Get().(*gzip.Writer)
	if !ok {
		w = gzip.NewWriter(&b)
	}
	w.Reset(&b)
	if _, err := w.Write(body); err != nil {
		return nil, fmt.Errorf("compress the body: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress the body: %w", err)
	}
	c.zippers.Put(w)
	h["Content-Encoding"] = []string{"gzip"}
	return b.Bytes(), nil
}
