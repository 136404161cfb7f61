package webhook

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/connectd/connectd/sinks/webhook/egress"
)

// secretive are names of headers and parameters whose values are not for everybody's eyes.
var secretive = regexp.MustCompile(`(?i)auth|key|token|secret|passw|cookie|signature`)

// harmless are names that look so and hold what every error about the row may show.
var harmless = regexp.MustCompile(`(?i)^(connectd-|ce-|idempotency-key$)`)

// hidden are texts that a receiver may repeat in its answer and that errors must not show, each followed by what stands
// in its place.
type hidden []string

// add hides texts, also as answers in JSON and form encoding write them.
func (h *hidden) add(texts ...string) {
	for _, text := range texts {
		if len(text) < 4 { // shorter ones would hide parts of ordinary words, and are no secrets anyway
			continue
		}
		quoted, _ := json.Marshal(text) // a string: it cannot fail
		forms := []string{text, string(quoted[1 : len(quoted)-1]), strings.ReplaceAll(text, "/", `\/`), url.QueryEscape(text)}
		slices.Sort(forms)
		for _, form := range slices.Compact(forms) {
			*h = append(*h, form, "***")
		}
	}
}

// hide is the secrets of the settings.
func hide(c *config) hidden {
	var h hidden
	for i := range c.Signing.Secrets {
		h.add(c.Signing.Secrets[i].Value.Reveal())
	}
	if a := c.Auth; a != nil {
		password := a.Password.Reveal()
		h.add(base64.StdEncoding.EncodeToString([]byte(a.Username+":"+password)), password, a.Token.Reveal(), a.Value.Reveal(),
			a.ClientSecret.Reveal(), a.SecretAccessKey.Reveal(), a.SessionToken.Reveal())
	}
	return h
}

// secretPath is how long a segment of a URL's path is that may be a secret, as those of Slack, Discord and Telegram are.
const secretPath = 16

// sent is the secrets of a request: tokens that were fetched or read from a file, and what rows brought along.
func sent(r *egress.Request) hidden {
	var h hidden
	for name, values := range r.Header {
		if !secretive.MatchString(name) || harmless.MatchString(name) {
			continue
		}
		for _, value := range values {
			h.add(value)
			if _, credentials, found := strings.Cut(value, " "); found { // after the scheme
				h.add(credentials)
			}
		}
	}
	h.add(r.URL.RawQuery) // keys of APIs are found there
	for name, values := range r.URL.Query() {
		if secretive.MatchString(name) {
			h.add(values...)
		}
	}
	for segment := range strings.SplitSeq(r.URL.EscapedPath(), "/") {
		if len(segment) >= secretPath {
			h.add(segment)
		}
	}
	return h
}

// replacer hides all of them.
func (h hidden) replacer() *strings.Replacer { return strings.NewReplacer(h...) }
