package webhook

import (
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/template"
)

// body checks what is about the body.
func (k *checker) body(c *config) {
	k.WrongIf(c.Body == bodyTemplate && c.BodyTemplate == "", "/body_template", "is required with body template")
	k.WrongIf(c.Body != bodyTemplate && c.BodyTemplate != "", "/body_template", "is for body template")
	k.WrongIf((c.Body == bodyPayload || c.Body == bodyTemplate) && c.CloudEvents.Set(), "/cloudevents", "has no effect with body %s", c.Body)
	k.WrongIf(c.ContentType != "" && !media(c.ContentType), "/content_type", "must be a media type, such as application/json")
	k.WrongIf(!fieldText(c.UserAgent), "/user_agent", "must be printable ASCII, without blanks around it")
	if b := c.Batch; b != nil {
		k.WrongIf(c.Body != bodyPayload && c.Body != bodyCEBatch, "/batch",
			"is for body payload and ce_batch: body %s makes a body of one record", c.Body)
		k.WrongIf(c.Body == bodyCEBatch && b.Format != "", "/batch/format", "is for body payload; a ce_batch has its own")
		if p := b.PerRowResults; p != nil {
			_, err := parsePointer(*p)
			k.WrongIf(err != nil, "/batch/per_row_results", "%v", err)
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
			k.Wrong(headerPointer(name), "%v", err)
		}
		made.headers = append(made.headers, headerTemplate{setting: name, name: http.CanonicalHeaderKey(name), value: t})
	}
	if c.Body == bodyTemplate {
		if made.template, err = parseBody(c.BodyTemplate, connector, int(c.MaxBodyBytes)); err != nil {
			k.Wrong("/body_template", "cannot be read: %v", err)
		}
	}
	events, problems := c.CloudEvents.Parse("/cloudevents", connector)
	made.events = events
	k.Add(problems)
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
		k.Wrong("/url", "cannot be made of a sample record: %v", err)
	case guard != nil && !c.url.hostVaries() && guard.URL(u) != nil:
		k.Wrong("/url", "is not let out by ssrf: %v", guard.URL(u))
	case c.config.list() && c.url.static == nil:
		k.Wrong("/url", "must not have {fields} of the row when a request has several rows")
	}
	for i := range c.headers {
		h := &c.headers[i]
		value, err := h.expand(&r)
		switch at := headerPointer(h.setting); {
		case err != nil:
			k.Wrong(at, "cannot be made of a sample record: %v", err)
		case !fieldText(value):
			k.Wrong(at, "must be printable ASCII, without blanks around it")
		case c.config.list() && !h.value.Fixed():
			k.Wrong(at, "must not have {fields} of the row when a request has several rows")
		}
	}
	if c.template != nil {
		k.tryBody(c.template, &r)
	}
	if k.Refused() {
		return
	}
	if _, outcome := c.compose([]core.Record{r}, []int{0}); outcome != nil && c.template == nil {
		k.Wrong("", "make no message of a sample record: %s", outcome.Message)
	}
}

// tryBody runs the body template. What fails only because the sample's payload and headers lack what a row's have is
// passed over.
func (k *checker) tryBody(t *bodyText, r *core.Record) {
	if err := t.unknownField(); err != nil {
		k.Wrong("/body_template", "%v", err)
		return
	}
	if _, looked, err := t.try(r); err != nil && !looked {
		k.Wrong("/body_template", "cannot be made of a sample record: %v", err)
	}
}

// sample is a record that has every field a template can name. Each has a value that a URL, a header and a body can
// hold; and is a URL where the setting url wants a whole one.
func sample(c *config) core.Record {
	value := "sample"
	if c.target.whole != nil {
		value = "https://sample.example/"
	}
	return template.Sample(value, append(slices.Sorted(maps.Values(c.Headers)), c.URL, c.CloudEvents.Source, c.CloudEvents.Type)...)
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
