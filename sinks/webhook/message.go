package webhook

import (
	"net/http"
	"net/url"
	"time"

	"github.com/connectd/connectd/core"
)

// message is one request as it is sent, again and again if need be: the same bytes each time. Nobody changes it.
type message struct {
	url      *url.URL
	endpoint string // scheme://host:port
	method   string
	header   http.Header // all but those of sign and of the authorization
	body     []byte
	id       string   // the webhook-id
	records  []int    // the records it carries: their indexes in the batch, in order
	rowIDs   []string // their ids
}

// composer makes messages of records. It may be used concurrently.
type composer struct{}

// newComposer returns a composer for settings that parse was content with. It reads the files of signing secrets, which
// is the only thing that can fail.
func newComposer(_ *config, _ Options) (*composer, error) { return &composer{}, nil }

// fixed is the URL whose scheme, host and port every request has, or nil when they depend on the row.
func (c *composer) fixed() *url.URL { return nil }

// compose makes one message of the records of batch that which names, or of as many from its front as one request
// takes: message.records says which. With an outcome instead, the first of them can never be sent as it is, and
// nothing is said about the others. which must not be empty.
func (c *composer) compose(_ []core.Record, _ []int) (*message, *core.Outcome) {
	return &message{}, nil
}

// sign returns the headers of one attempt: a fresh timestamp, and signatures over the bytes of the body.
func (c *composer) sign(_ *message, _ time.Time) http.Header { return nil }
