package webhook

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/connectd/connectd/core/settings"
)

// secretive are names of headers and of a query's parameters whose values are not for everybody's eyes.
var secretive = regexp.MustCompile(`(?i)auth|key|token|secret|passw|cookie|signature|sig$`)

// leastSecret is how long a secret is at least, in bytes: to hide shorter texts would hide parts of ordinary words.
const leastSecret = 4

// secrets are texts that errors do not show, longest first, since one may be part of another.
type secrets []string

// add adds texts, also as answers in JSON and in form encoding write them.
func (s *secrets) add(texts ...string) {
	for _, text := range texts {
		if len(text) < leastSecret {
			continue
		}
		quoted, _ := json.Marshal(text) // a string: it cannot fail
		forms := []string{text, string(quoted[1 : len(quoted)-1]), strings.ReplaceAll(text, "/", `\/`), url.QueryEscape(text)}
		slices.Sort(forms)
		*s = append(*s, slices.Compact(forms)...)
	}
}

// sort must be called when all are added.
func (s secrets) sort() {
	slices.SortFunc(s, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
}

// hide replaces the secrets in a text.
func (s secrets) hide(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// hideCut is hide for a text that was cut: it may end with the beginning of a secret.
func (s secrets) hideCut(text string) string {
	text = s.hide(text)
	for _, secret := range s {
		for n := min(len(secret)-1, len(text)); n >= leastSecret; n-- {
			if strings.HasSuffix(text, secret[:n]) {
				return text[:len(text)-n] + "***"
			}
		}
	}
	return text
}

// secretsOf are those of the settings.
func secretsOf(c *config) secrets {
	var s secrets
	s.add(settings.Secrets(c)...)
	if a := c.Auth; a != nil { // as the basic scheme sends it
		s.add(base64.StdEncoding.EncodeToString([]byte(a.Username + ":" + a.Password.Reveal())))
	}
	return s
}

// secretPath is how long a segment of a URL's path is that may be a secret, as those of Slack, Discord and Telegram are.
const secretPath = 16

// hidden are the secrets of the settings and of the request: tokens that were fetched or read from a file, and what rows
// brought along.
func (j *judge) hidden() secrets {
	s := slices.Clone(j.secrets)
	if r := j.request; r != nil {
		for name, values := range r.Header {
			if !j.confidential(name) {
				continue
			}
			for _, value := range values {
				s.add(value)
				s.add(strings.Fields(value)...) // the token without its scheme
			}
		}
		s.add(r.URL.RawQuery) // keys of APIs are found there
		for name, values := range r.URL.Query() {
			if secretive.MatchString(name) {
				s.add(values...)
			}
		}
		for segment := range strings.SplitSeq(r.URL.EscapedPath(), "/") {
			if len(segment) >= secretPath {
				s.add(segment)
			}
		}
	}
	s.sort()
	return s
}

// confidential reports whether a header's value is hidden, by its name in canonical form. Those that tell of the row
// are not, although one of them is its key.
func (j *judge) confidential(name string) bool {
	switch {
	case j.config.Auth != nil && slices.Contains(j.config.Auth.headers(), name):
		return true
	case strings.HasPrefix(name, "Connectd-"), strings.HasPrefix(name, "Ce-"):
		return false
	case j.config.Idempotency != nil && name == http.CanonicalHeaderKey(j.config.Idempotency.Name):
		return false
	}
	return secretive.MatchString(name)
}
