// Package auth shows a webhook's receiver who is sending: by a password, a token, a header, a token of OAuth 2 or a
// signature of AWS. Nothing here shows a secret in an error or when it is printed.
package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/connectd/connectd/core/secretfile"
	"github.com/connectd/connectd/sinks/webhook/egress"
)

// Authorizer shows who is sending a request. It may be used concurrently.
type Authorizer interface {
	// Authorize puts what shows it into the request, whose header must be there and is changed; the URL may be replaced
	// by another one. It is called for every attempt, when all else of the request is complete. An error says nothing
	// about the record: the request cannot be authorized now.
	Authorize(ctx context.Context, r *egress.Request) error
	// Refused is told that the destination answered 401 to a request that Authorize had its hands on. It forgets the
	// token in it, and reports whether the request, authorized anew, can do better.
	Refused(r *egress.Request) bool
}

// static authorizes by a header whose value depends on a secret alone.
type static struct {
	name  string
	value secretfile.Secret
}

// Basic is the Basic scheme of RFC 7617, in UTF-8. The user must not have a colon.
func Basic(user string, password secretfile.Secret) Authorizer {
	return static{"Authorization", func() (string, error) {
		text, err := password()
		if err != nil {
			return "", err
		}
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+text)), nil
	}}
}

// Bearer is the Bearer scheme of RFC 6750.
func Bearer(token secretfile.Secret) Authorizer {
	return static{"Authorization", func() (string, error) {
		text, err := token()
		if err != nil {
			return "", err
		}
		return bearer(text)
	}}
}

// bearer checks the token against what RFC 6750, section 2.1, and other schemes allow: visible characters.
func bearer(token string) (string, error) {
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the token is not made of visible ASCII characters")
	}
	return "Bearer " + token, nil
}

// Header is a header with a secret in it, such as X-Api-Key. The name must be in its canonical form.
func Header(name string, value secretfile.Secret) Authorizer { return static{name, value} }

// Authorize sets the header.
func (s static) Authorize(_ context.Context, r *egress.Request) error {
	value, err := s.current()
	if err != nil {
		return fmt.Errorf("secret of the header %s: %w", s.name, err)
	}
	r.Header.Set(s.name, value)
	return nil
}

// Refused reports whether the secret is another one by now.
func (s static) Refused(r *egress.Request) bool {
	value, err := s.current()
	return err == nil && value != r.Header.Get(s.name)
}

func (s static) current() (string, error) {
	value, err := s.value()
	if err == nil && !httpguts.ValidHeaderFieldValue(value) {
		return "", errors.New("it has characters that no header can carry")
	}
	return value, err
}
