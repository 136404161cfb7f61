package egress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// Phase is how far an exchange had come when it ended.
type Phase string

// The phases, in their order.
const (
	PhaseRequest Phase = "request" // the request itself cannot be sent, or must not be: ErrRefused
	PhaseWait    Phase = "wait"    // for a connection
	PhaseDNS     Phase = "dns"     // the host's addresses
	PhaseConnect Phase = "connect" // to one of them, through the proxy if there is one
	PhaseTLS     Phase = "tls"     // the handshake
	PhaseWrite   Phase = "write"   // the request is being written
	PhaseHeader  Phase = "header"  // the request is written, the answer's status and header are awaited
)

// Error is why there is no answer. Its text has no part of the request's URL but host and port, and nothing that the peer
// sent word for word.
type Error struct {
	Phase Phase
	// Sent says that a byte of the request may have left: nobody knows then what the destination did. If it is false,
	// the destination has not seen the request, or said by its protocol that it did nothing with it.
	Sent bool
	// Err is of net, crypto/tls, crypto/x509 or context where they have something to say: a certificate that is not
	// trusted is a *tls.CertificateVerificationError around an error of crypto/x509.
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Phase, e.Err) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout says whether a limit of time ended the exchange, a phase's or that of the context.
func (e *Error) Timeout() bool {
	var timeout interface{ Timeout() bool }
	return errors.As(e.Err, &timeout) && timeout.Timeout()
}

// withoutQuotes cuts an error's text where it begins to quote the peer, who may quote the request's secrets. Errors of the
// network quote nothing.
func withoutQuotes(err error) error {
	var network net.Error
	text, _, quotes := strings.Cut(err.Error(), `"`)
	if !quotes || errors.As(err, &network) || errors.Is(err, ErrRefused) || isCertificate(err) {
		return err
	}
	return errors.New(strings.TrimRight(text, " :;=,[(") + " (the rest is not shown)")
}

func isCertificate(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}

// certificateAlerts are what a server says of a client's certificate. In TLS 1.3 the client's handshake has ended before
// the server says it, so that it looks like an answer to the request, which the server never read.
// https://www.rfc-editor.org/rfc/rfc8446#section-6.2
var certificateAlerts = []tls.AlertError{
	42,  // bad_certificate
	43,  // unsupported_certificate
	44,  // certificate_revoked
	45,  // certificate_expired
	46,  // certificate_unknown
	48,  // unknown_ca
	49,  // access_denied
	51,  // decrypt_error: the certificate's signature
	116, // certificate_required
}

func refusedCertificate(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" && slices.ContainsFunc(certificateAlerts, func(a tls.AlertError) bool {
		return op.Err.Error() == a.Error()
	})
}

// unprocessed says whether HTTP/2 has given the request back: the stream was refused, or the server is going away and said
// that it did not come to it. Both mean that nothing was done (RFC 9113, section 8.7). net/http has no error of its own for
// it; if its words ever change, such a request counts as sent.
func unprocessed(err error) bool {
	text := err.Error()
	return strings.Contains(text, "cannot retry err [") &&
		(strings.Contains(text, "; REFUSED_STREAM") || strings.Contains(text, "graceful shutdown GOAWAY"))
}

// tooLarge says whether the request's header is larger than the server of HTTP/2 said it would take.
func tooLarge(err error) bool {
	return strings.Contains(err.Error(), "request header list larger than peer's advertised limit")
}
