package webhook

import (
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"github.com/connectd/connectd/core"
)

// meaning is what a status that is no success says.
type meaning struct {
	kind                      core.OutcomeKind
	unknown                   bool
	endpoint, trouble, slower bool
	reauthorize               bool
	wait                      time.Duration // at least, without a Retry-After
	usual                     bool          // by the table and not by the settings
}

// notFoundWait is how long a 404 is left alone at least: a deployment may have it for a moment, a wrong URL for ever.
const notFoundWait = 30 * time.Second

// succeeded reports whether a status says that the receiver took the message. A 207 says so only of single rows.
func (j *judge) succeeded(status int) bool {
	if len(j.config.SuccessStatus) > 0 {
		return j.config.SuccessStatus.has(status)
	}
	return status/100 == 2 && (status != http.StatusMultiStatus || j.config.perRow())
}

// delivered is the outcome of a record whose status is a success. Only one of 2xx, whatever success_status adds, says that
// the work is done, and a 207 does not say of what.
func (j *judge) delivered(status int) core.Outcome {
	done := status/100 == 2 && status != http.StatusMultiStatus
	return core.Outcome{Kind: core.Delivered, Completed: done && j.config.Receipt == receiptOn2xx}
}

// meaning is that of a status which is no success: what the settings say, or what is usual.
func (j *judge) meaning(status int) meaning {
	usual := usualMeaning(status)
	switch {
	case j.config.PermanentStatus.has(status):
		return meaning{kind: core.Permanent}
	case j.config.ThrottleStatus.has(status):
		return meaning{kind: core.Throttled, endpoint: true, slower: true}
	case j.config.RetryStatus.has(status):
		return meaning{kind: core.Retryable, trouble: usual.trouble, slower: usual.slower}
	}
	usual.usual = true
	return usual
}

// usualMeaning is the table of docs/sinks/webhook.md.
func usualMeaning(status int) meaning {
	record := meaning{kind: core.Retryable}
	endpoint := meaning{kind: core.Retryable, endpoint: true}
	permanent := meaning{kind: core.Permanent}
	switch status {
	case 207:
		// Charged to the record: it may have been taken each time, and must not be sent again without an end.
		return meaning{kind: core.Retryable, unknown: true}
	case 400, 405, 406, 411, 412, 413, 414, 415, 417, 422, 426, 428, 431, 451, 501, 505:
		return permanent
	case 401:
		endpoint.reauthorize = true
		return endpoint
	case 402, 403, 407, 410:
		return endpoint
	case 404:
		record.wait = notFoundWait
		return record
	case 429:
		return meaning{kind: core.Throttled, endpoint: true, slower: true}
	case 502, 503, 504:
		return meaning{kind: core.Retryable, trouble: true, slower: true}
	}
	switch status / 100 {
	case 1, 3: // the receiver is not what the url says
		return endpoint
	case 2: // taken, but not as success_status wants it
		record.unknown = true
		return record
	case 5:
		record.trouble = true
		return record
	default:
		return record
	}
}

// isCertificate reports whether the receiver did not prove who it is.
func isCertificate(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}
