package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/connectd/connectd/core/secretfile"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/sinks/webhook/auth"
	"github.com/connectd/connectd/sinks/webhook/egress"
)

// newCourier opens what the settings describe. It must be closed.
func newCourier(config *config, o Options, log *slog.Logger) (*courier, error) {
	composer, err := newComposer(config, o)
	if err != nil {
		return nil, err
	}
	var proxy *url.URL
	if text := config.ProxyURL.Reveal(); text != "" {
		if proxy, err = url.Parse(text); err != nil {
			return nil, errors.New("proxy_url is no URL") // url's error shows it
		}
	}
	c := &courier{
		composer: composer, judge: newJudge(config), auth: newAuthorizer(config.Auth, proxy),
		many: config.hostVaries(), total: time.Duration(config.Timeouts.Total), perRequest: 1, perRow: config.perRow(),
		lanes: config.Concurrency,
	}
	if c.many {
		c.lanes *= 2 // those that wait for a slow endpoint stand aside
	}
	if config.Batch != nil {
		c.perRequest = config.Batch.MaxRows
	}
	c.endpoints = newEndpoints(maxEndpoints, endpointMaker(config, c.many, log))
	c.client = egress.New(clientConfig(config, c.many, c.judge, proxy))
	return c, nil
}

// close closes the connections, those in use when they come back.
func (c *courier) close(context.Context) error {
	c.client.Close()
	return nil
}

// clientConfig says how requests travel.
func clientConfig(c *config, many bool, j *judge, proxy *url.URL) egress.Config {
	return egress.Config{
		Connect:         time.Duration(c.Timeouts.Connect),
		TLSHandshake:    time.Duration(c.Timeouts.TLS),
		Header:          time.Duration(c.Timeouts.Header),
		Body:            j.patience(),
		Capture:         j.capture(),
		TLS:             c.TLS,
		HTTP2:           c.HTTP2 == "auto",
		MaxConnsPerHost: c.MaxConnsPerHost,
		IdlePerHost:     c.perHost(many),
		IdleTimeout:     time.Duration(c.IdleConnTimeout),
		MaxAge:          time.Duration(c.MaxConnAge),
		Guard:           c.guard(),
		Proxy:           proxy,
	}
}

// newAuthorizer returns what shows who the sink is, nil for nobody. The token endpoint's certificate is checked with the
// system's authorities: the setting tls is about the receiver.
func newAuthorizer(a *authConfig, proxy *url.URL) auth.Authorizer {
	if a == nil {
		return nil
	}
	secret := func(value settings.Secret) secretfile.Secret {
		if a.File != "" {
			return secretfile.File(a.File)
		}
		return secretfile.Value(value.Reveal())
	}
	switch a.Type {
	case "basic":
		return auth.Basic(a.Username, secretfile.Value(a.Password.Reveal()))
	case "bearer":
		return auth.Bearer(secret(a.Token))
	case "header":
		return auth.Header(http.CanonicalHeaderKey(a.Name), secret(a.Value))
	case "oauth2":
		return auth.NewOAuth2(auth.OAuth2Config{
			TokenURL: a.TokenURL, ClientID: a.ClientID, ClientSecret: a.ClientSecret.Reveal(), Scopes: a.Scopes, Params: a.Params,
			SecretInBody: a.ClientAuth == "body", Proxy: proxy,
		})
	default:
		return auth.SigV4(auth.SigV4Config{
			Region: a.Region, Service: a.Service, AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey.Reveal(),
			SessionToken: a.SessionToken.Reveal(),
		})
	}
}
