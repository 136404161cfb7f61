package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/webhook/egress"
)

// verdict is what the answer to one attempt means.
type verdict struct {
	// outcome is that of each record of the message, unless perRecord has their own. Its scope is not set when
	// endpoint is.
	outcome core.Outcome
	// endpoint says that the failure, or the request to wait, is about the endpoint and not about the records.
	endpoint bool
	// trouble counts against the endpoint in its breaker: answers of 5xx, timeouts, no connection. What may be the
	// record's fault alone does not.
	trouble bool
	// slower says that the endpoint has more to do than it can.
	slower bool
	// reauthorize says that a fresh token may help: then the request may be repeated at once, one time.
	reauthorize bool
	// redirect is where the same message, signed anew, may be sent at once; nil: nowhere. It is on the same endpoint. The
	// caller bounds how often.
	redirect *url.URL
	// split says that some of the message's several records may be to blame: halve them, and try the halves in order.
	split bool
	// perRecord is the answer's own list, an outcome for each of message.records.
	perRecord []core.Outcome
}

// judge turns answers and failures into verdicts. It may be used concurrently.
type judge struct {
	config  *config
	results []string        // pointer to the rows' results in an answer
	secrets secrets         // of the settings
	request *egress.Request // that is answered; nil: any
	now     func() time.Time
	random  func() float64 // in [0, 1)
}

// newJudge returns a judge for settings that parse was content with.
func newJudge(c *config) *judge {
	j := &judge{config: c, secrets: secretsOf(c), now: time.Now, random: rand.Float64}
	if c.perRow() {
		j.results, _ = parsePointer(*c.Batch.PerRowResults) // parse was content with it
	}
	return j
}

// patience is how long the judge waits for an answer's body, when its header has come: as long as the request may take
// if the outcomes are in it.
func (j *judge) patience() time.Duration {
	if j.config.perRow() {
		return time.Duration(j.config.Timeouts.Total)
	}
	return time.Second
}

// to is a judge of the answer to one request, whose secrets it hides too.
func (j *judge) to(r *egress.Request) *judge {
	one := *j
	one.request = r
	return &one
}

// maxResults bounds what is read of an answer with an entry for each row, in bytes.
const maxResults = 1 << 20

// margin is what more of a body is looked at than is shown, since it becomes shorter where secrets are hidden: few tokens
// are longer.
const margin = 8 << 10

// capture is how many bytes of an answer's body the judge wants.
func (j *judge) capture() int {
	switch {
	case j.config.perRow():
		return maxResults
	case j.config.Capture.Bytes == 0:
		return 0
	}
	return int(j.config.Capture.Bytes) + margin
}

// answer judges the answer to a message: its status, headers, and the first bytes of its body, capture at most.
func (j *judge) answer(m *message, status int, header http.Header, body []byte) verdict {
	if j.succeeded(status) {
		if j.config.perRow() && status != http.StatusNoContent {
			return j.perRow(m, status, body)
		}
		return verdict{outcome: j.delivered(status)}
	}
	meant := j.meaning(status)
	wait, asked := retryAfter(header, j.now())
	switch {
	case j.config.AbortHeader && strings.EqualFold(strings.TrimSpace(header.Get("Webhook-Delivery")), "abort-message"):
		meant = meaning{kind: core.Permanent}
	case asked && status == http.StatusServiceUnavailable && meant.usual:
		meant.kind, meant.endpoint = core.Throttled, true
	case asked && status == http.StatusRequestEntityTooLarge && meant.usual:
		meant.kind = core.Retryable
	}
	v := verdict{
		outcome:  core.Outcome{Kind: meant.kind, Unknown: meant.unknown, Code: fmt.Sprintf("http_%03d", status)},
		endpoint: meant.endpoint, trouble: meant.trouble, slower: meant.slower, reauthorize: meant.reauthorize,
		split: meant.kind == core.Permanent && len(m.records) > 1,
	}
	asked = asked && meant.kind != core.Permanent
	if asked {
		v.outcome.RetryAfter = j.clamp(wait)
	} else if meant.kind != core.Permanent {
		v.outcome.RetryAfter = meant.wait
	}
	location := header.Get("Location")
	if j.config.FollowRedirects == redirectSame && (status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect) {
		v.redirect = sameEndpoint(m, location)
	}
	said := fmt.Sprintf("the receiver answered %d", status)
	if text := http.StatusText(status); text != "" {
		said += " " + text
	}
	if asked {
		said += fmt.Sprintf(" and asks for %v without requests", v.outcome.RetryAfter.Round(time.Second))
	}
	v.outcome.Message = j.describe(said, status, header, location, body)
	return v
}

// sameEndpoint is the Location of an answer, if it is on the message's own endpoint.
func sameEndpoint(m *message, location string) *url.URL {
	u, err := m.url.Parse(location)
	if err != nil || location == "" || u.User != nil {
		return nil
	}
	if u.Host = strings.ToLower(u.Host); endpointOf(u) != m.endpoint {
		return nil
	}
	u.Host, u.Fragment, u.RawFragment = m.url.Host, "", ""
	return u
}

// describe says for people what the answer was: what is said of it already, and what more can be said.
func (j *judge) describe(said string, status int, header http.Header, location string, body []byte) string {
	secrets := j.hidden()
	var b strings.Builder
	b.WriteString(said)
	if status/100 == 3 && location != "" {
		fmt.Fprintf(&b, ", to %s; a redirect is not followed, so set the url to where it leads", place(secrets.hide(location)))
	}
	if status == http.StatusMultiStatus {
		b.WriteString(", which says that rows fared differently; batch.per_row_results reads such an answer")
	}
	for _, name := range j.config.Capture.Headers {
		if value := header.Get(name); value != "" {
			fmt.Fprintf(&b, ", %s %.100s", name, secrets.hide(value))
		}
	}
	if snippet := j.snippet(header, body, secrets); snippet != "" {
		b.WriteString(": " + snippet)
	}
	return core.CleanText(secrets.hide(b.String()))
}

// snippet is what of the answer's body people can read.
func (j *judge) snippet(header http.Header, body []byte, hidden secrets) string {
	if encoding := header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return ""
	}
	limit := int(j.config.Capture.Bytes)
	text := string(body[:min(len(body), limit+margin)])
	if strings.ContainsRune(text, 0) {
		return "" // no text
	}
	if len(body) < limit+margin {
		text = hidden.hide(text)
	} else {
		text = hidden.hideCut(text)
	}
	return strings.Join(strings.Fields(core.CleanText(text[:min(len(text), limit)])), " ")
}

// place is a Location without its query, which may hold a secret, and without a user or fragment.
func place(location string) string {
	const longest = 200
	u, err := url.Parse(location)
	if err != nil {
		return "a place that is no URL"
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	text := u.String()
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return text
}

// failure judges an attempt that ended without an answer, which the error says why. The caller looks at its own context
// first: that it ran out before anything was sent is nobody's failure.
func (j *judge) failure(err error) verdict {
	var failed *egress.Error
	if !errors.As(err, &failed) {
		return verdict{outcome: core.Outcome{Kind: core.Retryable, Unknown: true, Code: "failed", Message: core.CleanText(j.hidden().hide(err.Error()))}}
	}
	text := core.CleanText(j.hidden().hide(reason(failed)))
	timeout := failed.Timeout()
	switch {
	case failed.Sent:
		o := core.Outcome{Kind: core.Retryable, Unknown: true, Code: "connection_lost", Message: "no answer, and the request may have taken effect: " + text}
		if timeout {
			o.Code = "timeout"
		}
		return verdict{outcome: o, trouble: true, slower: timeout}
	case errors.Is(err, egress.ErrRefused) && j.config.hostVaries():
		return verdict{outcome: core.Outcome{Kind: core.Permanent, Code: "refused", Message: text}}
	case errors.Is(err, egress.ErrRefused):
		return verdict{outcome: core.Outcome{Kind: core.Retryable, Code: "refused", Message: text}, endpoint: true}
	case failed.Phase == egress.PhaseRequest:
		return verdict{outcome: core.Outcome{Kind: core.Permanent, Code: "bad_request", Message: text}}
	}
	o := core.Outcome{Kind: core.Retryable, Code: string(failed.Phase), Message: text}
	if isCertificate(err) {
		o.Code = "certificate"
	}
	return verdict{outcome: o, endpoint: true, trouble: true, slower: timeout}
}

// meanwhile is what is done in each phase.
var meanwhile = map[egress.Phase]string{
	egress.PhaseRequest: "before it began",
	egress.PhaseWait:    "while it waited for a connection",
	egress.PhaseDNS:     "while the host was looked up",
	egress.PhaseConnect: "while it connected",
	egress.PhaseTLS:     "in the handshake",
	egress.PhaseWrite:   "while it was written",
	egress.PhaseHeader:  "while the answer was awaited",
}

// reason is why there was no answer, in fewer words than net/http and its kin take: the outcome's code says the phase.
func reason(e *egress.Error) string {
	text := e.Err.Error()
	switch {
	case errors.Is(e.Err, io.EOF), text == io.EOF.Error():
		return "the receiver closed the connection"
	case errors.Is(e.Err, context.DeadlineExceeded):
		return "time ran out " + meanwhile[e.Phase]
	}
	for _, noise := range []string{"net/http: HTTP/1.x transport connection broken: ", "net/http: ", "dial tcp: ", "dial tcp ", "tls: "} {
		text = strings.TrimPrefix(text, noise)
	}
	return text
}
