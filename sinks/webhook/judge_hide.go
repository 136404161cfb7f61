package webhook

import (
	"encoding/base64"
	"regexp"
	"strings"
)

// secretive are names of headers whose values are not for everybody's eyes.
var secretive = regexp.MustCompile(`(?i)auth|key|token|secret|passw|cookie|signature`)

// hide replaces the secrets of the settings, so that a receiver that repeats a request in its answer does not put them into
// errors.
func hide(c *config) *strings.Replacer {
	var pairs []string
	add := func(texts ...string) {
		for _, text := range texts {
			if len(text) >= 4 { // shorter ones would hide parts of ordinary words, and are no secrets anyway
				pairs = append(pairs, text, "***")
			}
		}
	}
	for i := range c.Signing.Secrets {
		add(c.Signing.Secrets[i].Value.Reveal())
	}
	if a := c.Auth; a != nil {
		password := a.Password.Reveal()
		add(base64.StdEncoding.EncodeToString([]byte(a.Username+":"+password)), password, a.Token.Reveal(), a.Value.Reveal(),
			a.ClientSecret.Reveal(), a.SecretAccessKey.Reveal(), a.SessionToken.Reveal())
	}
	for name, value := range c.Headers {
		if secretive.MatchString(name) {
			add(value)
		}
	}
	if u := c.target.static; u != nil {
		add(u.RawQuery) // keys of APIs are found there
	}
	return strings.NewReplacer(pairs...)
}
