package kafka

import (
	"strings"
	"time"

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
	Brokers  []string `json:"brokers" required:"true" max:"64" doc:"host:port of the brokers to begin with; all are tried"`
	ClientID string   `json:"client_id" max:"200" doc:"name in the brokers' logs and quotas; default: connectd- and the connector's name"`

	Topic          string               `json:"topic" required:"true" doc:"where records go; may have {fields}"`
	Key            string               `json:"key" doc:"the message's key; may have {fields}; default: the row's key as it is"`
	Partition      string               `json:"partition" doc:"number of the partition; may have {fields}; default: by the hash of the message's key, as Java's producer has it"`
	Format         string               `json:"format" default:"raw" enum:"raw,ce_binary,ce_structured" doc:"what the value and the headers are"`
	ContentType    string               `json:"content_type" doc:"default: the row's content-type header; for CloudEvents else application/json"`
	CloudEvents    cloudevents.Settings `json:"cloudevents" doc:"attributes of CloudEvents"`
	Headers        map[string]string    `json:"headers" max:"64" doc:"headers of each message, by name; values may have {fields}"`
	ForwardHeaders []string             `json:"forward_headers" max:"64" doc:"the row's headers that go along under their own names, or * for all, which is the default"`
	Timestamp      string               `json:"timestamp" default:"created" enum:"created,now" doc:"the message's time: when the row was inserted, or when it is sent"`

	Acks              string            `json:"acks" default:"all" enum:"all,one" doc:"who must have a record before it is delivered: all replicas in sync, or their leader alone"`
	AllowUnsafeAcks   bool              `json:"allow_unsafe_acks" default:"false" doc:"needed for acks: one, which loses records when a leader is lost"`
	Idempotent        bool              `json:"idempotent" default:"true" doc:"let the brokers drop what a retry of the sink repeats; not with acks: one"`
	Compression       string            `json:"compression" default:"none" enum:"none,gzip,snappy,lz4,zstd" doc:"of the batches"`
	MaxBatchBytes     settings.Bytes    `json:"max_batch_bytes" default:"1020KiB" min:"1KiB" max:"64MiB" doc:"largest batch of a partition; a record that needs more is never sent"`
	UnknownTopicGrace settings.Duration `json:"unknown_topic_grace" default:"1m" min:"1s" max:"24h" doc:"how long a topic that a row names may be missing before its records are buried"`
	CreateTopics      *createTopics     `json:"create_topics" doc:"create topics that are missing; absent: never"`

	SASL     *saslConfig        `json:"sasl" doc:"who the sink is to the brokers; absent: nobody, or who its certificate says"`
	TLS      *tlsfiles.Settings `json:"tls" doc:"{} for TLS with the system's certificates; absent: no TLS"`
	Timeouts timeouts           `json:"timeouts" doc:"of single steps"`
}

type createTopics struct {
	Partitions  int `json:"partitions" min:"1" max:"10000" doc:"of a new topic; default: the brokers' num.partitions"`
	Replication int `json:"replication_factor" min:"1" max:"100" doc:"of a new topic; default: the brokers' default.replication.factor"`
}

type saslConfig struct {
	Mechanism           string `json:"mechanism" required:"true" enum:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" doc:"the way"`
	Username            string `json:"username" required:"true" doc:"the user"`
	secretfile.Password        // password or password_file
}

type timeouts struct {
	Connect settings.Duration `json:"connect" default:"5s" min:"1ms" max:"5m" doc:"name resolution, connection, TLS and SASL"`
	Request settings.Duration `json:"request" default:"10s" min:"1ms" max:"5m" doc:"one request, until the broker has answered"`
}

const defaultGrace = time.Minute // of unknown_topic_grace

// The values of acks and format.
const (
	acksAll = "all"
	acksOne = "one"

	formatRaw        = "raw"
	formatBinary     = "ce_binary"
	formatStructured = "ce_structured"
)

// parse reads the settings and tries them on a sample record. It does no I/O. When a diagnostic is no warning, the
// config and the composer are worth nothing.
func parse(data []byte, o Options) (*config, *composer, []core.Diagnostic) {
	c := new(config)
	if diagnostics := settings.Decode(data, c); len(diagnostics) > 0 {
		return c, nil, diagnostics
	}
	c.complete(o)
	var p settings.Problems
	checkBrokers(&p, c)
	checkAcks(&p, c)
	checkSecurity(&p, c)
	made := compile(&p, c, o.Connector)
	if !p.Refused() {
		made.rehearse(&p)
	}
	return c, made, p
}

// complete fills in the defaults that depend on other things.
func (c *config) complete(o Options) {
	if c.ClientID == "" {
		c.ClientID = strings.TrimRight("connectd-"+o.Connector, "-")
	}
	if c.ForwardHeaders == nil {
		c.ForwardHeaders = []string{everyHeader}
	}
	if c.Acks == acksOne {
		c.Idempotent = false // brokers take sequence numbers with acks=all alone
	}
	if c.SASL != nil {
		c.SASL.Resolve(o.Dir)
	}
	if c.TLS != nil {
		c.TLS.Resolve(o.Dir)
	}
}
