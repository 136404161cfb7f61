package webhook

import (
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/cloudevents"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/tlsfiles"
)

// Options are what the sink's process knows beside the settings.
type Options struct {
	Connector string // what {connector} stands for
	Dir       string // what relative paths are relative to; "": they are refused
	Version   string // of connectd
}

// config is the settings. What parse returns is complete: a field that the settings leave out has its default.
type config struct {
	URL            string               `json:"url" required:"true" doc:"where requests go: an http or https URL whose host, path and query may have {fields}, or one {field} alone that holds a whole URL"`
	Method         string               `json:"method" default:"POST" enum:"POST,PUT,PATCH,DELETE" doc:"of the requests"`
	Headers        map[string]string    `json:"headers" max:"64" doc:"headers of each request, by name; values may have {fields}"`
	ForwardHeaders []string             `json:"forward_headers" max:"64" doc:"the row's headers that go along under their own names, or * for all; default traceparent and tracestate"`
	Body           string               `json:"body" default:"payload" enum:"payload,template,ce_structured,ce_binary,ce_batch" doc:"what the body is"`
	BodyTemplate   string               `json:"body_template" doc:"text of the body in the language of Go's text/template, for body: template"`
	ContentType    string               `json:"content_type" doc:"default: the row's content-type header, else application/json"`
	CloudEvents    cloudevents.Settings `json:"cloudevents" doc:"attributes of CloudEvents"`
	Batch          *batching            `json:"batch" doc:"several rows a request; absent: one"`
	MaxBodyBytes   settings.Bytes       `json:"max_body_bytes" default:"1MiB" min:"1" max:"64MiB" doc:"largest body, before compression; a record that needs more is never sent"`
	Compress       string               `json:"compress" default:"none" enum:"none,gzip" doc:"Content-Encoding of the body"`
	UserAgent      string               `json:"user_agent" doc:"default: connectd/VERSION"`

	Signing     signing      `json:"signing" doc:"signatures of the requests"`
	Idempotency *idempotency `json:"idempotency_header" doc:"a header with the row's id beside webhook-id; absent: none"`
	Auth        *authConfig  `json:"auth" doc:"who the sink is to the receiver; absent: nobody"`

	TLS             tlsfiles.Settings `json:"tls" doc:"of https; default: the system's certificates"`
	Timeouts        timeouts          `json:"timeouts" doc:"of one request"`
	HTTP2           string            `json:"http2" default:"auto" enum:"auto,off" doc:"auto: where the receiver offers it"`
	MaxConnsPerHost int               `json:"max_conns_per_host" min:"0" max:"10000" doc:"0: as many as run at once"`
	IdleConnTimeout settings.Duration `json:"idle_conn_timeout" default:"60s" min:"1s" max:"1h" doc:"after which an unused connection is closed"`
	MaxConnAge      settings.Duration `json:"max_conn_age" default:"5m" min:"1s" max:"24h" doc:"after which a connection is used no more, so that DNS changes count"`
	ProxyURL        settings.Secret   `json:"proxy_url" doc:"HTTP proxy; the environment's is never used"`
	SSRF            ssrf              `json:"ssrf" doc:"addresses that requests may go to"`
	FollowRedirects string            `json:"follow_redirects" default:"never" enum:"never,same_host_307_308" doc:"a redirect is a failure, or may be followed on the same host when it keeps the method"`
	Concurrency     int               `json:"concurrency" default:"64" min:"1" max:"1024" doc:"requests at once"`
	PerEndpoint     int               `json:"concurrency_per_endpoint" default:"16" min:"1" max:"1024" doc:"requests at once to one scheme, host and port when the host has {fields}"`
	RateLimit       *rateLimit        `json:"rate_limit" doc:"per scheme, host and port; absent: none"`
	Breaker         *breaker          `json:"breaker" doc:"when an endpoint is left alone, for a host with {fields}"`
	SuccessStatus   statuses          `json:"success_status" max:"64" doc:"answers that mean delivered; default 2xx"`
	Receipt         string            `json:"receipt" default:"none" enum:"none,on_2xx" doc:"on_2xx: an answer of 2xx says that the work is done, and is stored as a receipt of the connector"`
	RetryStatus     statuses          `json:"retry_status" max:"64" doc:"answers that are tried again"`
	PermanentStatus statuses          `json:"permanent_status" max:"64" doc:"answers that bury the record"`
	ThrottleStatus  statuses          `json:"throttle_status" max:"64" doc:"answers that mean: later"`
	RetryAfterMax   settings.Duration `json:"retry_after_max" default:"1h" min:"1s" max:"24h" doc:"longest Retry-After that is heeded"`
	AbortHeader     bool              `json:"abort_header" default:"false" doc:"heed webhook-delivery: abort-message, which buries the record"`
	Capture         capture           `json:"capture" doc:"what of a failed request's answer the error shows"`

	target *urlTemplate // URL, read
}

type batching struct {
	MaxRows       int            `json:"max_rows" default:"100" min:"1" max:"10000" doc:"rows in a request"`
	MaxBytes      settings.Bytes `json:"max_bytes" default:"256KiB" min:"1" max:"64MiB" doc:"size of a request's body that no further row is added to"`
	Format        string         `json:"format" enum:"json,ndjson" doc:"a JSON array or a line for each row; default json"`
	PerRowResults *string        `json:"per_row_results" doc:"JSON pointer to a list of {id, status} in the answer"`
}

type signing struct {
	Scheme       string          `json:"scheme" enum:"standard,github,stripe,none" doc:"default standard with secrets, none without"`
	Secrets      []signingSecret `json:"secrets" max:"8" doc:"the first is the current one; others sign too until not_after"`
	HeaderPrefix string          `json:"header_prefix" default:"webhook-" doc:"of the three headers; another one, such as svix-, is used beside webhook-"`
}

type signingSecret struct {
	Value    settings.Secret `json:"value" doc:"the secret; of the standard scheme whsec_ or whsk_ and base64"`
	File     string          `json:"file" doc:"file that holds it instead"`
	NotAfter instant         `json:"not_after" doc:"RFC 3339 time after which it signs no more"`
}

type idempotency struct {
	Name   string `json:"name" default:"Idempotency-Key" doc:"of the header"`
	Quoted bool   `json:"quoted" default:"true" doc:"as a structured field's string"`
}

type authConfig struct {
	Type string `json:"type" required:"true" enum:"basic,bearer,header,oauth2,sigv4" doc:"the way"`

	Username string          `json:"username" doc:"basic"`
	Password settings.Secret `json:"password" doc:"basic"`

	Token settings.Secret `json:"token" doc:"bearer"`
	Name  string          `json:"name" doc:"header: its name"`
	Value settings.Secret `json:"value" doc:"header: its value"`
	File  string          `json:"file" doc:"bearer and header: file with the token or value, read again when it changes"`

	TokenURL     string            `json:"token_url" doc:"oauth2: where tokens come from"`
	ClientID     string            `json:"client_id" doc:"oauth2"`
	ClientSecret settings.Secret   `json:"client_secret" doc:"oauth2"`
	Scopes       []string          `json:"scopes" max:"64" doc:"oauth2"`
	Params       map[string]string `json:"params" max:"16" doc:"oauth2: more parameters of the token request, such as audience"`
	ClientAuth   string            `json:"client_auth" enum:"basic,body" doc:"oauth2: how the client shows its secret; default basic"`

	Region          string          `json:"region" doc:"sigv4"`
	Service         string          `json:"service" doc:"sigv4, such as execute-api"`
	AccessKeyID     string          `json:"access_key_id" doc:"sigv4"`
	SecretAccessKey settings.Secret `json:"secret_access_key" doc:"sigv4"`
	SessionToken    settings.Secret `json:"session_token" doc:"sigv4, for temporary keys"`
}

type timeouts struct {
	Connect settings.Duration `json:"connect" min:"1ms" max:"5m" doc:"name resolution and connection; default 5s, or total if that is less"`
	TLS     settings.Duration `json:"tls" min:"1ms" max:"5m" doc:"TLS handshake; default 5s, or total if that is less"`
	Header  settings.Duration `json:"header" min:"1ms" max:"1h" doc:"from the request's end to the answer's headers; default 15s, or total if that is less"`
	Total   settings.Duration `json:"total" default:"20s" min:"1ms" max:"1h" doc:"the whole request"`
}

type ssrf struct {
	Mode       string   `json:"mode" default:"auto" enum:"auto,on,off" doc:"refuse private addresses; auto: when the host has {fields}"`
	AllowCIDRs []prefix `json:"allow_cidrs" max:"256" doc:"allowed all the same"`
	DenyCIDRs  []prefix `json:"deny_cidrs" max:"256" doc:"refused too, whatever is allowed"`
	AllowHosts []string `json:"allow_hosts" max:"1024" doc:"the only hosts; *.example.com is every name below example.com"`
	AllowPorts []int    `json:"allow_ports" max:"64" doc:"default 80, 443, 8080 and 8443"`
}

type rateLimit struct {
	Rate  rate `json:"rate" required:"true" doc:"requests in a time, such as 100/s, 600/m or 5/10s"`
	Burst int  `json:"burst" min:"1" max:"100000" doc:"requests at once; default what one second lets through"`
}

type breaker struct {
	MinRequests  int               `json:"min_requests" default:"10" min:"1" max:"10000" doc:"before it judges"`
	FailureRatio float64           `json:"failure_ratio" default:"0.7" min:"0.01" max:"1" doc:"failed requests that open it"`
	OpenFor      settings.Duration `json:"open_for" default:"30s" min:"1s" max:"1h" doc:"time without requests"`
	HalfOpen     int               `json:"half_open" default:"1" min:"1" max:"100" doc:"requests that then try"`
}

type capture struct {
	Bytes   settings.Bytes `json:"bytes" default:"1KiB" min:"0" max:"1KiB" doc:"of the body"`
	Headers []string       `json:"headers" max:"8" doc:"headers of the answer, such as x-request-id"`
}

// receiptOn2xx is a value of receipt.
const receiptOn2xx = "on_2xx"

// The values of follow_redirects.
const (
	redirectNever = "never"
	redirectSame  = "same_host_307_308"
)

// parse reads the settings and tries them on a sample record. It does no I/O. When a diagnostic is no warning, the
// config is worth nothing.
func parse(data []byte, o Options) (config, []core.Diagnostic) {
	var c config
	if diagnostics := settings.Decode(data, &c); len(diagnostics) > 0 {
		return c, diagnostics
	}
	var k checker
	var err error
	if c.target, err = parseURL(c.URL, o.Connector); err != nil {
		k.Wrong("/url", "%v", err)
		return c, k.Problems
	}
	c.complete(o)
	c.resolve(o.Dir)
	k.statuses(&c)
	k.connections(&c)
	k.body(&c)
	k.signing(&c, time.Now())
	if c.Auth != nil {
		k.auth(&c)
	}
	k.tls(&c)
	k.ssrf(&c)
	k.openly(&c)
	k.strangers(&c)
	k.names(&c)
	k.secretFiles(&c)
	composer, problems := compile(&c, o.Connector)
	if k.Add(problems.Problems); !k.Refused() {
		k.rehearse(composer)
	}
	if c.Breaker == nil {
		c.Breaker = defaults[breaker]()
	}
	return c, k.Problems
}

// complete fills in the defaults that depend on other settings.
func (c *config) complete(o Options) {
	if c.UserAgent == "" {
		c.UserAgent = strings.TrimRight("connectd/"+o.Version, "/")
	}
	if c.ForwardHeaders == nil {
		c.ForwardHeaders = []string{cloudevents.TraceParent, cloudevents.TraceState}
	}
	if c.Body == bodyCEBatch && c.Batch == nil {
		c.Batch = defaults[batching]()
	}
	if c.Signing.Scheme == "" && len(c.Signing.Secrets) > 0 {
		c.Signing.Scheme = schemeStandard
	} else if c.Signing.Scheme == "" {
		c.Signing.Scheme = schemeNone
	}
	if !c.hostVaries() || c.PerEndpoint > c.Concurrency {
		c.PerEndpoint = c.Concurrency
	}
	if c.MaxConnsPerHost == 0 {
		c.MaxConnsPerHost = c.PerEndpoint
	}
	c.Timeouts.complete()
	if l := c.RateLimit; l != nil && l.Burst == 0 {
		l.Burst = max(1, int(l.Rate.perSecond()))
	}
}

// complete gives the phases that are not set their time, which is never more than the whole has.
func (t *timeouts) complete() {
	for phase, usual := range map[*settings.Duration]time.Duration{&t.Connect: 5 * time.Second, &t.TLS: 5 * time.Second, &t.Header: 15 * time.Second} {
		if *phase == 0 {
			*phase = min(settings.Duration(usual), t.Total)
		}
	}
}

// resolve makes the files' paths absolute, as far as there is a directory that they are relative to.
func (c *config) resolve(dir string) {
	c.TLS.Resolve(dir)
	for i := range c.Signing.Secrets {
		settings.Absolute(dir, &c.Signing.Secrets[i].File)
	}
	if c.Auth != nil {
		settings.Absolute(dir, &c.Auth.File)
	}
}

// defaults is a group of settings of which none is set.
func defaults[T any]() *T {
	group := new(T)
	settings.Decode([]byte(`{}`), group)
	return group
}

// hostVaries says whether the scheme, host or port of the URL depends on the row.
func (c *config) hostVaries() bool { return c.target.hostVaries() }

// guarded says whether the addresses that requests go to are checked.
func (c *config) guarded() bool {
	return c.SSRF.Mode == "on" || c.SSRF.Mode == "auto" && c.hostVaries()
}
