package rabbitmq

import (
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/cloudevents"
	"github.com/connectd/connectd/core/secretfile"
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
	URLs                []string          `json:"urls" required:"true" max:"16" doc:"the cluster's nodes, tried in turn: amqp://host:port, or amqps://host:port with TLS"`
	VHost               string            `json:"vhost" default:"/" min:"1" max:"255" doc:"virtual host"`
	SASL                string            `json:"sasl" default:"plain" enum:"plain,external" doc:"plain: user name and password; external: the client certificate"`
	Username            string            `json:"username" max:"255" doc:"the user; default guest for a server on this machine"`
	secretfile.Password                   // password or password_file
	TLS                 tlsfiles.Settings `json:"tls" doc:"of amqps; default: the system's certificates"`
	ConnectionName      string            `json:"connection_name" max:"255" doc:"name in the server's management and logs; default: connectd- and the connector's name"`

	Exchange          string `json:"exchange" default:"" doc:"where messages go; empty: the default exchange, for which the routing key is a queue's name; may have {fields}"`
	RoutingKey        string `json:"routing_key" default:"{route}" doc:"by which the exchange routes; may have {fields}"`
	OnUnroutable      string `json:"on_unroutable" default:"retry" enum:"retry,permanent" doc:"a record that no queue takes is retried until the connector gives up, or buried at once"`
	OnMissingExchange string `json:"on_missing_exchange" default:"retry" enum:"retry,permanent" doc:"the same for one whose exchange, which a row chose, is not there"`

	Format          string               `json:"format" default:"raw" enum:"raw,ce_binary,ce_structured" doc:"what the body and the headers are"`
	ContentType     string               `json:"content_type" max:"255" doc:"default: the row's content-type header, else application/json"`
	CloudEvents     cloudevents.Settings `json:"cloudevents" doc:"attributes of CloudEvents"`
	Headers         map[string]string    `json:"headers" max:"64" doc:"headers of each message, by name; values may have {fields}"`
	ForwardHeaders  []string             `json:"forward_headers" max:"64" doc:"the row's headers that go along under their own names, or * for all, which is the default"`
	HeaderTypes     map[string]kind      `json:"header_types" max:"64" doc:"what headers are, by name, that are no strings: int, float or bool"`
	Properties      properties           `json:"properties" doc:"of each message; an empty one is not sent"`
	MaxMessageBytes settings.Bytes       `json:"max_message_bytes" default:"16MiB" min:"1" max:"512MiB" doc:"largest body; a record that needs more is never sent"`

	Declare  string   `json:"declare" default:"passive" enum:"none,passive,active" doc:"at each connection: nothing, look whether exchange and queues are there, or make what topology lists"`
	Topology topology `json:"topology" doc:"exchanges, queues and bindings that are looked for, or made"`

	Lanes            int               `json:"lanes" default:"4" min:"1" max:"64" doc:"channels; a key keeps to one"`
	ConfirmWindow    int               `json:"confirm_window" default:"1000" min:"1" max:"10000" doc:"messages of a channel that wait for their confirmation"`
	Heartbeat        settings.Duration `json:"heartbeat" default:"10s" min:"1s" max:"10m" doc:"whole seconds; a node that is silent for one and a half times as long is lost"`
	Timeouts         timeouts          `json:"timeouts" doc:"of single steps"`
	ReconnectBackoff backoff           `json:"reconnect_backoff" doc:"pauses between attempts to connect"`
}

// properties are texts that may have fields.
type properties struct {
	Type            string `json:"type" default:"{type|}" doc:"may have {fields}"`
	CorrelationID   string `json:"correlation_id" default:"" doc:"may have {fields}"`
	ReplyTo         string `json:"reply_to" default:"" doc:"may have {fields}"`
	AppID           string `json:"app_id" default:"connectd/{connector}" doc:"may have {fields}"`
	ContentEncoding string `json:"content_encoding" default:"" doc:"may have {fields}"`
	Priority        string `json:"priority" default:"" doc:"0 to 255; may have {fields}"`
	Expiration      string `json:"expiration" default:"" doc:"milliseconds after which a queue drops the message; may have {fields}"`
}

type timeouts struct {
	Connect settings.Duration `json:"connect" default:"10s" min:"10ms" max:"5m" doc:"one node: connection, TLS, login, channels and declare"`
	Confirm settings.Duration `json:"confirm" default:"30s" min:"100ms" max:"1h" doc:"a message's confirmation"`
	Blocked settings.Duration `json:"blocked" default:"60s" min:"100ms" max:"1h" doc:"how long a node may block the connection before another one is tried"`
}

type backoff struct {
	Min settings.Duration `json:"min" default:"500ms" min:"10ms" max:"1h" doc:"the first"`
	Max settings.Duration `json:"max" default:"30s" min:"10ms" max:"1h" doc:"the longest"`
}

type topology struct {
	Exchanges []exchange `json:"exchanges" max:"256" doc:"durable ones"`
	Queues    []queue    `json:"queues" max:"256" doc:"durable ones"`
	Bindings  []binding  `json:"bindings" max:"1024" doc:"of queues; made, never looked for"`
}

type exchange struct {
	Name      string              `json:"name" required:"true" max:"255" doc:"the exchange's name"`
	Type      string              `json:"type" default:"topic" max:"255" doc:"direct, fanout, topic, headers, or that of a plugin"`
	Arguments map[string]argument `json:"arguments" max:"64" doc:"such as alternate-exchange"`
}

type queue struct {
	Name      string              `json:"name" required:"true" max:"255" doc:"the queue's name"`
	Type      string              `json:"type" default:"quorum" enum:"classic,quorum,stream" doc:"kind of queue"`
	Arguments map[string]argument `json:"arguments" max:"64" doc:"such as x-max-length"`
}

type binding struct {
	Exchange   string              `json:"exchange" required:"true" max:"255" doc:"from"`
	Queue      string              `json:"queue" required:"true" max:"255" doc:"to"`
	RoutingKey string              `json:"routing_key" max:"255" doc:"or the pattern of a topic exchange"`
	Arguments  map[string]argument `json:"arguments" max:"64" doc:"such as x-match"`
}

// The values of settings that are looked at in several places.
const (
	saslExternal = "external"

	permanently = "permanent" // on_unroutable, on_missing_exchange

	formatRaw        = "raw"
	formatBinary     = "ce_binary"
	formatStructured = "ce_structured"

	declareNone   = "none"
	declareActive = "active"

	everyHeader = "*" // forward_headers
)

// parse reads the settings and tries them on a sample record. It does no I/O. When a diagnostic is no warning, the config
// and the composer are worth nothing.
func parse(data []byte, o Options) (*config, *composer, []core.Diagnostic) {
	c := new(config)
	if diagnostics := settings.Decode(data, c); len(diagnostics) > 0 {
		return c, nil, diagnostics
	}
	c.complete(o)
	var p settings.Problems
	checkURLs(&p, c)
	checkLogin(&p, c)
	checkTopology(&p, c)
	checkHeaders(&p, c)
	made := compile(&p, c, o.Connector)
	if !p.Refused() {
		made.rehearse(&p)
	}
	return c, made, p
}

// complete fills in the defaults that depend on other things.
func (c *config) complete(o Options) {
	if c.ConnectionName == "" {
		c.ConnectionName = strings.TrimRight("connectd-"+o.Connector, "-")
	}
	if c.ForwardHeaders == nil {
		c.ForwardHeaders = []string{everyHeader}
	}
	c.Password.Resolve(o.Dir)
	c.TLS.Resolve(o.Dir)
	// A server that was never set up lets guest in, from its own machine.
	if c.SASL != saslExternal && c.Username == "" && !c.Password.Set() && c.local() {
		c.Username, c.Value = "guest", settings.NewSecret("guest")
	}
}
