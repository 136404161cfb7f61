package webhook

import (
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	"github.com/connectd/connectd/sinks/webhook/egress"
)

// newCourier opens what the settings describe. It must be closed.
func newCourier(config *config, o Options, log *slog.Logger) (*courier, error) {
	composer, err := newComposer(config, o)
	if err != nil {
		return nil, err
	}
	c := &courier{
		composer: composer, judge: newJudge(config), many: composer.fixed() == nil,
		total: time.Duration(config.Timeouts.Total), perRequest: 1,
	}
	if config.Batch != nil {
		c.perRequest, c.perRow = config.Batch.MaxRows, config.Batch.PerRowResults != nil
	}
	client, err := clientConfig(config, c.many, c.judge.capture())
	if err != nil {
		return nil, err
	}
	c.endpoints = newEndpoints(maxEndpoints, endpointMaker(config, c.many, log))
	c.client = egress.New(client)
	return c, nil
}

func (c *courier) close() { c.client.Close() }

func clientConfig(c *config, many bool, capture int) (egress.Config, error) {
	perHost := c.Concurrency
	if many {
		perHost = min(c.PerEndpoint, c.Concurrency)
	}
	e := egress.Config{
		Connect:      time.Duration(c.Timeouts.Connect),
		TLSHandshake: time.Duration(c.Timeouts.TLS),
		Header:       time.Duration(c.Timeouts.Header),
		Capture:      capture,
		TLS: egress.TLS{
			CAFile: c.TLS.CAFile, CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, ServerName: c.TLS.ServerName,
			MinVersion: c.TLS.MinVersion, InsecureSkipVerify: c.TLS.Insecure,
		},
		HTTP2:           c.HTTP2 == "auto",
		MaxConnsPerHost: c.MaxConnsPerHost, // each request on the wire has one: perHost bounds them
		IdlePerHost:     perHost,
		IdleTimeout:     time.Duration(c.IdleConnTimeout),
		MaxAge:          time.Duration(c.MaxConnAge),
	}
	if c.SSRF.Mode == "on" || c.SSRF.Mode == "auto" && many {
		e.Guard = egress.NewGuard(egress.Rules{
			AllowCIDRs: prefixes(c.SSRF.AllowCIDRs), DenyCIDRs: prefixes(c.SSRF.DenyCIDRs),
			AllowHosts: c.SSRF.AllowHosts, AllowPorts: c.SSRF.AllowPorts,
		})
	}
	if text := c.ProxyURL.Reveal(); text != "" {
		proxy, err := url.Parse(text)
		if err != nil {
			return e, errors.New("proxy_url is no URL") // url's error shows it
		}
		e.Proxy = proxy
	}
	return e, nil
}

func prefixes(from []prefix) []netip.Prefix {
	to := make([]netip.Prefix, len(from))
	for i, p := range from {
		to[i] = netip.Prefix(p)
	}
	return to
}
