package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/connectd/connectd/core/secretfile"
	"github.com/connectd/connectd/sinks/webhook/signature"
)

// The schemes of signing.scheme.
const (
	schemeStandard = "standard"
	schemeGitHub   = "github"
	schemeStripe   = "stripe"
	schemeNone     = "none"
)

// The headers of the schemes other than the standard one.
const (
	headerGitHub = "X-Hub-Signature-256"
	headerStripe = "Stripe-Signature"
)

// standardPrefix is what the names of the standard scheme's headers begin with.
const standardPrefix = "webhook-"

// signer signs with all secrets that are in force at the time of the attempt.
type signer struct {
	scheme  string
	secrets []secret
	names   []headerNames // of the standard scheme
}

type secret struct {
	key   signature.Key // of the standard scheme
	text  []byte        // of the others
	until time.Time     // zero: for ever
}

// headerNames are the standard scheme's headers with one prefix, in canonical form.
type headerNames struct{ id, timestamp, signature string }

func namesWith(prefix string) headerNames {
	return headerNames{
		http.CanonicalHeaderKey(prefix + "id"), http.CanonicalHeaderKey(prefix + "timestamp"),
		http.CanonicalHeaderKey(prefix + "signature"),
	}
}

// headerNames lists the prefixes in use; the webhook-id is sent whatever the scheme.
func (s *signing) headerNames() []headerNames {
	if strings.EqualFold(s.HeaderPrefix, standardPrefix) {
		return []headerNames{namesWith(standardPrefix)}
	}
	return []headerNames{namesWith(standardPrefix), namesWith(s.HeaderPrefix)}
}

// signedHeaders are the headers that identify or sign a request, in canonical form.
func (c *config) signedHeaders() []string {
	var names []string
	for _, n := range c.Signing.headerNames() {
		names = append(names, n.id, n.timestamp, n.signature)
	}
	switch c.Signing.Scheme {
	case schemeGitHub:
		names = append(names, headerGitHub)
	case schemeStripe:
		names = append(names, headerStripe)
	}
	return names
}

// newSigner reads the secrets, those in files too.
func newSigner(s *signing) (*signer, error) {
	made := &signer{scheme: s.Scheme, names: s.headerNames()}
	for i := range s.Secrets {
		text := s.Secrets[i].Value.Reveal()
		if file := s.Secrets[i].File; file != "" {
			var err error
			if text, err = secretfile.File(file)(); err != nil {
				return nil, fmt.Errorf("read a signing secret: %w", err)
			}
		}
		one, err := parseSecret(s.Scheme, text)
		if err != nil {
			return nil, fmt.Errorf("signing.secrets.%d %w", i, err)
		}
		one.until = time.Time(s.Secrets[i].NotAfter)
		made.secrets = append(made.secrets, one)
	}
	return made, nil
}

func parseSecret(scheme, text string) (secret, error) {
	if scheme != schemeStandard {
		return secret{text: []byte(text)}, nil
	}
	key, err := signature.ParseKey(text)
	return secret{key: key}, err
}

// sign sets the headers of one attempt: a fresh timestamp, and signatures over the bytes of the body.
func (s *signer) sign(h http.Header, id string, body []byte, now time.Time) {
	var keys []signature.Key
	var texts [][]byte
	for _, one := range s.secrets {
		if one.until.IsZero() || now.Before(one.until) {
			keys = append(keys, one.key)
			texts = append(texts, one.text)
		}
	}
	switch s.scheme {
	case schemeStandard:
		timestamp, signatures := strconv.FormatInt(now.Unix(), 10), signature.Standard(keys, id, now, body)
		for _, n := range s.names {
			h[n.timestamp] = []string{timestamp}
			h[n.signature] = []string{signatures}
		}
	case schemeGitHub:
		h[headerGitHub] = []string{signature.GitHub(texts[0], body)}
	case schemeStripe:
		h[headerStripe] = []string{signature.Stripe(texts, now, body)}
	}
}
