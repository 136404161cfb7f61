package webhook

import (
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/template"
)

// body checks what is about the body.
func (k *checker) body(c *config) {
	k.wrongIf(c.Body == bodyTemplate && c.BodyTemplate == "", "/body_template", "is required with body template")
	k.wrongIf(c.Body != bodyTemplate && c.BodyTemplate != "", "/body_template", "is for body template")
	k.wrongIf(c.ContentType != "" && !media(c.ContentType), "/content_type", "must be a media type, such as application/json")
	k.wrongIf(!fieldText(c.UserAgent), "/user_agent", "must be printable ASCII, without blanks around it")
	if b := c.Batch; b != nil {
		k.wrongIf(c.Body != bodyPayload && c.Body != bodyCEBatch, "/batch",
			"is for body payload and ce_batch: body %s makes a body of one record", c.Body)
		k.wrongIf(c.Body == bodyCEBatch && b.Format != "", "/batch/format", "is for body payload; a ce_batch has its own")
		if p := b.PerRowResults; p != nil {
			_, err := parsePointer(*p)
			k.wrongIf(err != nil, "/batch/per_row_results", "%v", err)
		}
	}
}

// compile reads the templates among the settings.
func compile(c *config, connector string) (*composer, checker) {
	var k checker
	made := &composer{config: c, url: c.target, names: c.Signing.headerNames(), forwarding: newForwarding(c)}
	if c.Idempotency != nil {
		made.idempotent = http.CanonicalHeaderKey(c.Idempotency.Name)
	}
	var err error
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		t, err := template.Parse(c.Headers[name], connector)
		if err != nil {
			k.wrong(headerPointer(name), "%v", err)
		}
		made.headers = append(made.headers, headerTemplate{setting: name, name: http.CanonicalHeaderKey(name), value: t})
	}
	if c.Body == bodyTemplate {
		if made.template, err = parseBody(c.BodyTemplate, connector, int(c.MaxBodyBytes)); err != nil {
			k.wrong("/body_template", "cannot be read: %v", err)
		}
	}
	if made.source, err = template.Parse(c.CloudEvents.Source, connector); err != nil {
		k.wrong("/cloudevents/source", "%v", err)
	}
	if made.kind, err = template.Parse(c.CloudEvents.Type, connector); err != nil {
		k.wrong("/cloudevents/type", "%v", err)
	}
	return made, k
}

func headerPointer(name string) string { return "/headers/" + settings.Escape(name) }

// rehearse makes a message of a sample record, so that what would fail for every record fails here.
func (k *checker) rehearse(c *composer) {
	r := sample(c.config)
	u, err := c.url.expand(&r)
	guard := c.config.guard()
	switch {
	case err != nil:
		k.wrong("/url", "cannot be made of a sample record: %v", err)
	case guard != nil && !c.url.hostVaries() && guard.URL(u) != nil:
		k.wrong("/url", "is not let out by ssrf: %v", guard.URL(u))
	case c.config.list() && c.url.static == nil:
		k.wrong("/url", "must not have {fields} of the row when a request has several rows")
	}
	for i := range c.headers {
		h := &c.headers[i]
		value, err := h.expand(&r)
		switch at := headerPointer(h.setting); {
		case err != nil:
			k.wrong(at, "cannot be made of a sample record: %v", err)
		case !fieldText(value):
			k.wrong(at, "must be printable ASCII, without blanks around it")
		case c.config.list() && !h.value.Fixed():
			k.wrong(at, "must not have {fields} of the row when a request has several rows")
		}
	}
	if c.template != nil {
		k.tryBody(c.template, &r)
	}
	if source, err := c.source.Expand(&r, escapeURL); err != nil || source == "" || !isReference(source) {
		k.wrong("/cloudevents/source", "must be a URI reference, such as https://example.com/shop or /shop")
	}
	if k.refused {
		return
	}
	if _, outcome := c.compose([]core.Record{r}, []int{0}); outcome != nil && c.template == nil {
		k.wrong("", "make no message of a sample record: %s", outcome.Message)
	}
}

func isReference(s string) bool {
	_, err := url.Parse(s)
	return err == nil && fieldText(s) && !strings.ContainsAny(s, " \"<>\\^`{|}")
}

// tryBody runs the body template. What fails only because the sample's payload and headers lack what a row's have is
// passed over.
func (k *checker) tryBody(t *bodyText, r *core.Record) {
	if err := t.unknownField(); err != nil {
		k.wrong("/body_template", "%v", err)
		return
	}
	if _, looked, err := t.try(r); err != nil && !looked {
		k.wrong("/body_template", "cannot be made of a sample record: %v", err)
	}
}

// headerFields finds the headers that templates name.
var headerFields = regexp.MustCompile(`\{header:([^}|]+)`)

// sample is a record that has every field a template can name. Each has a value that a URL, a header and a body can
// hold; and is a URL where the setting url wants a whole one.
func sample(c *config) core.Record {
	value := "sample"
	if c.target.whole != nil {
		value = "https://sample.example/"
	}
	r := core.Record{
		ID: value, Key: value, Keyed: true, Route: value, Type: value, Payload: []byte(`{}`),
		CreatedAt: time.Unix(0, 0), Seq: 1, Deliveries: 1, Epoch: 1,
	}
	texts := append(slices.Sorted(maps.Values(c.Headers)), c.URL, c.CloudEvents.Source, c.CloudEvents.Type)
	for _, m := range headerFields.FindAllStringSubmatch(strings.Join(texts, "\n"), -1) {
		r.Headers = append(r.Headers, core.Header{Name: m[1], Value: value})
	}
	return r
}

// parsePointer splits a JSON pointer (RFC 6901).
func parsePointer(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	if text[0] != '/' {
		return nil, errors.New(`must be a JSON pointer, such as "/results", or "" for the whole answer`)
	}
	parts := strings.Split(text[1:], "/")
	for i, part := range parts {
		if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(part), "~") {
			return nil, fmt.Errorf("must have 0 or 1 after each tilde")
		}
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
	}
	return parts, nil
}

// media reports whether s can be a Content-Type.
func media(s string) bool {
	_, _, err := mime.ParseMediaType(s)
	return err == nil && fieldText(s)
}
