package webhook

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// authFields says which settings a type of auth needs, and which it may have.
type authFields struct{ needs, may []string }

var authTypes = map[string]authFields{
	"basic":  {needs: []string{"username", "password"}},
	"bearer": {may: []string{"token", "file"}},
	"header": {needs: []string{"name"}, may: []string{"value", "file"}},
	"oauth2": {needs: []string{"token_url", "client_id", "client_secret"}, may: []string{"scopes", "params", "client_auth"}},
	"sigv4":  {needs: []string{"region", "service", "access_key_id", "secret_access_key"}, may: []string{"session_token"}},
}

// set lists the settings that are there.
func (a *authConfig) set() map[string]bool {
	all := map[string]bool{
		"username": a.Username != "", "password": a.Password.Reveal() != "", "token": a.Token.Reveal() != "",
		"name": a.Name != "", "value": a.Value.Reveal() != "", "file": a.File != "", "token_url": a.TokenURL != "",
		"client_id": a.ClientID != "", "client_secret": a.ClientSecret.Reveal() != "", "scopes": len(a.Scopes) > 0,
		"params": len(a.Params) > 0, "client_auth": a.ClientAuth != "", "region": a.Region != "", "service": a.Service != "",
		"access_key_id": a.AccessKeyID != "", "secret_access_key": a.SecretAccessKey.Reveal() != "",
		"session_token": a.SessionToken.Reveal() != "",
	}
	maps.DeleteFunc(all, func(_ string, there bool) bool { return !there })
	return all
}

// auth checks that the settings are those of the type.
func (k *checker) auth(c *config) {
	a := c.Auth
	fields, set := authTypes[a.Type], a.set()
	for _, name := range fields.needs {
		k.WrongIf(!set[name], "/auth/"+name, "is required with auth.type %s", a.Type)
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		known := slices.Contains(fields.needs, name) || slices.Contains(fields.may, name)
		k.WrongIf(!known, "/auth/"+name, "is not for auth.type %s", a.Type)
	}
	switch a.Type {
	case "basic":
		k.WrongIf(strings.Contains(a.Username, ":"), "/auth/username", "must not have a colon, which ends the name in basic authentication")
	case "bearer":
		k.either("token", set)
		k.WrongIf(!fieldText(a.Token.Reveal()), "/auth/token", "has a character that a header cannot hold")
	case "header":
		k.either("value", set)
		k.authHeader(c)
	case "oauth2":
		u, err := url.Parse(a.TokenURL)
		bad := err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil
		k.WrongIf(set["token_url"] && bad, "/auth/token_url", "must be an http or https URL without user info")
		if set["token_url"] && !bad && u.Scheme == "http" && !loopback(u.Hostname()) {
			k.Warn("/auth/token_url", "begins with http://, so that the client's secret goes over the network for everybody to read")
		}
	}
}

// either wants one of a value and a file.
func (k *checker) either(value string, set map[string]bool) {
	switch {
	case set[value] && set["file"]:
		k.Wrong("/auth/file", "is one too many beside auth.%s; leave out one of them", value)
	case !set[value] && !set["file"]:
		k.Wrong("/auth/"+value, "is required, or auth.file")
	}
}

func (k *checker) authHeader(c *config) {
	own := *c
	own.Auth = nil
	reserved := own.reservedHeader(http.CanonicalHeaderKey(c.Auth.Name))
	switch {
	case c.Auth.Name == "":
	case !token(c.Auth.Name):
		k.Wrong("/auth/name", "must be the name of a header")
	case reserved != "":
		k.Wrong("/auth/name", "cannot be this header: it %s", reserved)
	}
	k.WrongIf(!fieldText(c.Auth.Value.Reveal()), "/auth/value", "has a character that a header cannot hold")
}
