package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/cloudevents"
	"github.com/connectd/connectd/sinks/webhook/signature"
)

// maxHead bounds URL and headers of a message, in bytes. Receivers take a quarter of it or less; it keeps a row's giant
// header from being taken for a fault of the connection.
const maxHead = 64 << 10

// message is one request as it is sent, again and again if need be: the same bytes each time. Only the headers of an
// attempt change, those of sign and of the authorization. Its body may be a record's payload, and so is not to be kept.
type message struct {
	url      *url.URL
	endpoint string // scheme://host:port
	method   string
	header   http.Header // those of the latest attempt too
	body     []byte
	id       string   // the webhook-id
	records  []int    // the records it carries: their indexes in the batch, in order
	rowIDs   []string // their ids
}

// composer makes messages of records. It may be used concurrently.
type composer struct {
	config     *config
	url        *urlTemplate
	headers    []headerTemplate
	forwarding forwarding
	template   *bodyText // of body: template
	events     *cloudevents.Mapper
	signer     *signer
	names      []headerNames // under which the webhook-id is sent
	idempotent string        // header with the id; "": none
	zippers    sync.Pool     // *gzip.Writer
}

// newComposer returns a composer for settings that parse was content with. It reads the files of signing secrets, which
// is the only thing that can fail.
func newComposer(c *config, o Options) (*composer, error) {
	made, problems := compile(c, o.Connector)
	if problems.Refused() { // not reached: parse did the same
		return nil, errors.New(problems.Problems[0].Message)
	}
	var err error
	made.signer, err = newSigner(&c.Signing)
	return made, err
}

// fixed is the URL whose scheme, host and port every request has, or nil when they depend on the row.
func (c *composer) fixed() *url.URL {
	if c.url.hostVaries() {
		return nil
	}
	return &c.url.base
}

// compose makes one message of the records of batch that which names, or of as many from its front as one request
// takes: message.records says which. With an outcome instead, the first of them can never be sent as it is, and
// nothing is said about the others. which must not be empty.
func (c *composer) compose(batch []core.Record, which []int) (*message, *core.Outcome) {
	r := &batch[which[0]]
	u, err := c.url.expand(r)
	if err != nil {
		return nil, unsendable("bad_url", err)
	}
	m := &message{url: u, endpoint: endpointOf(u), method: c.config.Method, header: http.Header{}}
	if err := c.head(m.header, r); err != nil {
		return nil, unsendable("bad_header", err)
	}
	taken := 1
	if c.config.list() {
		m.body, taken, err = c.listBody(m.header, batch, which)
	} else {
		m.body, err = c.body(m.header, r)
	}
	switch {
	case errors.Is(err, errTooLong):
		return nil, unsendable("too_large", err)
	case err != nil:
		return nil, unsendable("bad_body", err)
	case len(m.body) > int(c.config.MaxBodyBytes):
		return nil, c.tooLarge(len(m.body))
	}
	m.records = which[:taken:taken]
	for _, i := range m.records {
		m.rowIDs = append(m.rowIDs, batch[i].ID)
	}
	if m.id = signature.EncodeID(r.ID); c.config.list() {
		m.id = listID(m.rowIDs)
	}
	c.identify(m)
	if size := headSize(m); size > maxHead {
		return nil, unsendable("too_large", fmt.Errorf("URL and headers need %d bytes, no more than %d are sent", size, maxHead))
	}
	if m.body, err = c.compressed(m.header, m.body); err != nil {
		return nil, unsendable("bad_body", err)
	}
	return m, nil
}

// head adds the headers that are the same for a message of one record, whatever its body.
func (c *composer) head(h http.Header, r *core.Record) error {
	for i := range c.headers {
		value, err := c.headers[i].expand(r)
		if err != nil {
			return err
		}
		h[c.headers[i].name] = append(h[c.headers[i].name], value)
	}
	h["User-Agent"] = []string{c.config.UserAgent}
	if c.config.list() {
		return nil
	}
	c.forward(h, r)
	if c.config.Body != bodyCEBinary && c.config.Body != bodyCEStructured {
		describe(h, r)
	}
	return nil
}

// identify adds the message's id under all its names.
func (c *composer) identify(m *message) {
	for _, n := range c.names {
		m.header[n.id] = []string{m.id}
	}
	if c.idempotent == "" {
		return
	}
	// The id has no character that a structured field's string (RFC 9651 section 3.3.3) would escape.
	value := m.id
	if c.config.Idempotency.Quoted {
		value = `"` + value + `"`
	}
	m.header[c.idempotent] = []string{value}
}

// sign sets the headers of one attempt: a fresh timestamp, and signatures over the bytes of the body.
func (c *composer) sign(m *message, now time.Time) { c.signer.sign(m.header, m.id, m.body, now) }

func headSize(m *message) int {
	size := len(m.url.RequestURI()) + len(m.url.Host)
	for name, values := range m.header {
		for _, value := range values {
			size += len(name) + len(value) + len(": \r\n")
		}
	}
	return size
}

// unsendable is the outcome of a record that no message can be made of.
func unsendable(code string, why error) *core.Outcome {
	return &core.Outcome{Kind: core.Permanent, Code: code, Message: core.CleanText(why.Error())}
}
