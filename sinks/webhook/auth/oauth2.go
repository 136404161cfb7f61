package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/connectd/connectd/core/tlsfiles"
	"github.com/connectd/connectd/sinks/webhook/egress"
)

const (
	tokenTimeout  = 10 * time.Second // for one token
	maxToken      = 64 << 10         // bytes of the token endpoint's answer
	tokenPause    = time.Second      // after a failure, before the endpoint is asked again
	refusalPause  = 5 * time.Second  // after a refused token, before its successor is forgotten
	renewEarly    = time.Minute      // before a token's end, or a fifth of its life
	distrustEarly = 5 * time.Second  // before a token's end, or a twentieth of its life
)

// OAuth2Config is a client of OAuth 2 with credentials of its own (RFC 6749, section 4.4).
type OAuth2Config struct {
	TokenURL     string // configured by the operator: no Guard looks at it
	ClientID     string
	ClientSecret string
	Scopes       []string
	Params       map[string]string // more of the token request's parameters, such as audience
	SecretInBody bool              // the client's id and secret are parameters, and not Basic authentication
	TLS          tlsfiles.Settings // of the token endpoint
	Proxy        *url.URL
}

// OAuth2 keeps one token for all requests. It is renewed before it ends, by one request, while the others go on with the
// old one; those that have none wait for it.
type OAuth2 struct {
	config *clientcredentials.Config // behind a pointer, so that nothing prints it
	client egress.Config
	now    func() time.Time
	turn   chan struct{} // held by the one that asks for a token

	mu      sync.Mutex
	token   *token // nil: there is none
	failure error  // of the last try
	again   time.Time
	refused time.Time // when a token was forgotten
}

// token is never changed.
type token struct {
	header string
	renew  time.Time // from then on, though it is good until
	end    time.Time // zero: for ever
}

// NewOAuth2 returns an Authorizer that asks for its first token when it needs one.
func NewOAuth2(c OAuth2Config) *OAuth2 {
	style := oauth2.AuthStyleInHeader
	if c.SecretInBody {
		style = oauth2.AuthStyleInParams
	}
	params := url.Values{}
	for name, value := range c.Params {
		params.Set(name, value)
	}
	return &OAuth2{
		config: &clientcredentials.Config{
			ClientID: c.ClientID, ClientSecret: c.ClientSecret, TokenURL: c.TokenURL,
			Scopes: c.Scopes, EndpointParams: params, AuthStyle: style,
		},
		client: egress.Config{TLS: c.TLS, Proxy: c.Proxy, Capture: maxToken, Body: tokenTimeout},
		now:    time.Now,
		turn:   make(chan struct{}, 1),
	}
}

// Authorize sets the Authorization header.
func (o *OAuth2) Authorize(ctx context.Context, r *egress.Request) error {
	t, err := o.current(ctx)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", t.header)
	return nil
}

// Refused forgets the token that the request bears, unless it was forgotten already, or is itself the fresh successor of a
// refused one: then tokens are not what is wrong.
func (o *OAuth2) Refused(r *egress.Request) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.token == nil || o.token.header != r.Header.Get("Authorization") {
		return true
	}
	now := o.now()
	if now.Sub(o.refused) < refusalPause {
		return false
	}
	o.token, o.refused = nil, now
	return true
}

// current returns a token that is good, and asks for a new one if there is none, or soon will be none.
func (o *OAuth2) current(ctx context.Context) (*token, error) {
	t, ask, err := o.look()
	switch {
	case !ask:
		return t, err
	case t != nil:
		select {
		case o.turn <- struct{}{}:
		default:
			return t, nil
		}
	default:
		select {
		case o.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a token: %w", ctx.Err())
		}
	}
	defer func() { <-o.turn }()
	if t, ask, err = o.look(); !ask {
		return t, err
	}
	fresh, err := o.fetch(ctx)
	if err == nil {
		t = fresh
	}
	o.keep(ctx, t, err)
	if t != nil {
		return t, nil // if it is the old one, it is good for a while
	}
	return nil, err
}

// look returns the token if it is good, and whether to ask for a new one. With neither it returns why the last try failed.
func (o *OAuth2) look() (t *token, ask bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	if t = o.token; t != nil && !t.end.IsZero() && !now.Before(t.end) {
		t = nil
	}
	ask = now.After(o.again) && (t == nil || !t.end.IsZero() && !now.Before(t.renew))
	if t == nil && !ask {
		return nil, false, o.failure
	}
	return t, ask, nil
}

// keep notes what a try gave. That the caller ran out of time says nothing about the endpoint.
func (o *OAuth2) keep(ctx context.Context, t *token, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.token, o.failure, o.again = t, nil, time.Time{}
	case ctx.Err() == nil:
		o.failure, o.again = err, o.now().Add(tokenPause)
	}
}

// fetch asks the endpoint for a token.
func (o *OAuth2) fetch(ctx context.Context) (*token, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	client := egress.New(o.client)
	defer client.Close()
	now := o.now()
	got, err := o.config.Token(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Transport:     tripper{client},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}))
	if err != nil {
		return nil, withoutSecrets(err)
	}
	if got.Type() != "Bearer" {
		return nil, errors.New("the token endpoint gave a token of another type than Bearer")
	}
	header, err := bearer(got.AccessToken)
	if err != nil {
		return nil, fmt.Errorf("token endpoint: %w", err)
	}
	t := &token{header: header}
	if !got.Expiry.IsZero() {
		life := time.Until(got.Expiry)
		if life <= 0 {
			return nil, errors.New("the token endpoint gave a token that has ended already")
		}
		t.renew = now.Add(life - min(renewEarly, life/5))
		t.end = now.Add(life - min(distrustEarly, life/20))
	}
	return t, nil
}

// errorCode is what an error code of RFC 6749, section 5.2, looks like, and a secret does not.
var errorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

// withoutSecrets says what went wrong without the endpoint's words, which may quote the request, and without its URL.
func withoutSecrets(err error) error {
	var refusal *oauth2.RetrieveError
	var failure *egress.Error
	var malformed *url.Error
	switch {
	case errors.As(err, &refusal) && errorCode.MatchString(refusal.ErrorCode):
		return fmt.Errorf("token endpoint answered %d %s", refusal.Response.StatusCode, refusal.ErrorCode)
	case errors.As(err, &refusal):
		return fmt.Errorf("token endpoint answered %d", refusal.Response.StatusCode)
	case errors.As(err, &failure):
		return fmt.Errorf("token endpoint: %w", failure)
	case errors.Is(err, errLong):
		return fmt.Errorf("token endpoint: %w", errLong)
	case errors.As(err, &malformed):
		return errors.New("token endpoint: its URL cannot be used")
	default:
		return errors.New("token endpoint answered without a token that can be read")
	}
}

var errLong = errors.New("the answer did not end in time, or is too long")

// tripper sends the requests of package oauth2, bounded as egress does it.
type tripper struct{ client *egress.Client }

// RoundTrip is http.RoundTripper's.
func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	answer, err := t.client.Do(r.Context(), egress.Request{Method: r.Method, URL: r.URL, Header: r.Header, Body: body})
	if err != nil {
		return nil, err
	}
	if !answer.Whole {
		return nil, errLong
	}
	return &http.Response{
		StatusCode: answer.Status, Header: answer.Header, Request: r,
		Body: io.NopCloser(bytes.NewReader(answer.Body)), ContentLength: int64(len(answer.Body)),
	}, nil
}
