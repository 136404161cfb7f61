package webhook

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// signing checks the secrets.
func (k *checker) signing(c *config, now time.Time) {
	s := &c.Signing
	switch {
	case s.Scheme == schemeNone && s.Secrets != nil && len(s.Secrets) == 0:
		k.Wrong("/signing/secrets", "is empty, so that nothing would be signed; leave it out if that is meant")
	case s.Scheme == schemeNone && len(s.Secrets) > 0:
		k.Wrong("/signing/secrets", "has no effect with signing.scheme none; leave out one of them")
	case s.Scheme != schemeNone && len(s.Secrets) == 0:
		k.Wrong("/signing/secrets", "is required with signing.scheme %s", s.Scheme)
	case s.Scheme == schemeGitHub && len(s.Secrets) > 1:
		k.Wrong("/signing/secrets/1", "is one too many: the github scheme has one signature")
	}
	for i := range s.Secrets {
		k.secret(s, i, now)
	}
	stem, dashed := strings.CutSuffix(s.HeaderPrefix, "-")
	k.WrongIf(!dashed || !token(stem), "/signing/header_prefix", `must be the beginning of a header's name, up to its dash, such as "svix-"`)
	for _, n := range s.headerNames() {
		k.WrongIf(slices.Contains(connection, n.id) || strings.HasPrefix(n.id, "Connectd-"), "/signing/header_prefix",
			"must not be the prefix of headers that have another meaning")
	}
}

func (k *checker) secret(s *signing, i int, now time.Time) {
	at := fmt.Sprintf("/signing/secrets/%d", i)
	one := &s.Secrets[i]
	until := time.Time(one.NotAfter)
	switch value := one.Value.Reveal(); {
	case value == "" && one.File == "":
		k.Wrong(at+"/value", "is required")
	case value != "" && one.File != "":
		k.Wrong(at+"/file", "is one too many beside value; leave out one of them")
	case value != "" && s.Scheme == schemeStandard:
		if _, err := parseSecret(s.Scheme, value); err != nil {
			k.Wrong(at+"/value", "%v", err)
		}
	case value != "" && len(value) < 16:
		k.Warn(at+"/value", "is short enough to be guessed; use 32 random characters")
	}
	switch {
	case until.IsZero():
	case i == 0:
		k.Wrong(at+"/not_after", "must not be set: the first secret is the current one, and without it nothing would be signed")
	case !now.Before(until):
		k.Warn(at+"/not_after", "has passed: this secret signs no more and can be removed")
	}
}
