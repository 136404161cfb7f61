package webhook

import (
	"net/http"

	"github.com/connectd/connectd/core"
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
	// split says that some of the message's several records may be to blame: halve them, and try the halves in order.
	split bool
	// perRecord is the answer's own list, an outcome for each of message.records.
	perRecord []core.Outcome
}

// judge turns answers and failures into verdicts. It may be used concurrently.
type judge struct{}

func newJudge(_ *config) *judge { return &judge{} }

// capture is how many bytes of an answer's body the judge wants.
func (j *judge) capture() int { return 0 }

// answer judges the answer to a message: its status, headers, and the first bytes of its body, capture at most.
func (j *judge) answer(_ *message, _ int, _ http.Header, _ []byte) verdict { return verdict{} }

// failure judges an attempt that ended without an answer, which the error says why. The caller looks at its own context
// first: that it ran out before anything was sent is nobody's failure.
func (j *judge) failure(_ error) verdict { return verdict{} }
