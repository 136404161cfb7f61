// Package config reads connectd's YAML into checked values. It is strict: what is unknown, misspelt, of the wrong type,
// out of range or twice there is a problem with its file, line and column; all of them are reported at once; and a
// problem of one connector leaves the others usable.
//
// Variables, ${NAME}, ${NAME:-default} and ${file:/path}, are substituted in values after the YAML is parsed, once, so
// what they contain is never taken for YAML, a variable or a number. Relative paths, in files given, in ${file:...}
// and in settings alike, are relative to the daemon's working directory.
package config

import (
	"strconv"
	"time"

	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/tlsfiles"
)

// Config is what the YAML files say together.
type Config struct {
	Daemon Daemon
	// Connectors without a problem, in the order of the files.
	Connectors []Connector
}

// Daemon is the process's own part.
type Daemon struct {
	HTTP  string          `json:"http" default:"127.0.0.1:8083" min:"1" doc:"host:port of the API, metrics and console, or off"`
	Token settings.Secret `json:"token" min:"1" doc:"bearer token that HTTP clients must send; needed to listen beyond loopback"`
	// ReceiptsToken is for consumers, who need not be able to do more.
	ReceiptsToken settings.Secret `json:"receipts_token" min:"1" doc:"bearer token that may be sent instead for receipts, and for nothing else"`
	PluginDir     string          `json:"plugin_dir" default:"/usr/lib/connectd/plugins" min:"1" doc:"directory of the connectd-sink-NAME programs"`
	RuntimeDir    string          `json:"runtime_dir" doc:"directory for the sockets of sinks' processes; default: a private one below the system's temporary directory"`
}

// Connector is one source/sink pair.
type Connector struct {
	Name      string    `json:"-"`
	Pos       Pos       `json:"-"` // of its name
	Source    Source    `json:"source" required:"true" doc:"the outbox table"`
	Sink      Sink      `json:"sink" required:"true" doc:"the destination; its keys are the plugin's settings"`
	Process   Process   `json:"process" doc:"the sink's process"`
	Delivery  Delivery  `json:"delivery" doc:"how records are sent"`
	Retention Retention `json:"retention" doc:"how long finished rows are kept"`
	Audit     Audit     `json:"audit" doc:"what the books must agree with"`
}

// Source is an outbox table. SQLite has a path, the servers have a DSN.
type Source struct {
	Plugin string          `json:"plugin" required:"true" enum:"postgres,mysql,sqlite" doc:"the kind of database"`
	DSN    settings.Secret `json:"dsn" doc:"where the server is and how to log in"`
	// TLS is for mysql; nil: what the DSN says. The files' paths are absolute once the file has been read.
	TLS   *tlsfiles.Settings `json:"tls" doc:"on mysql: {} for TLS with the system's certificates; absent: what the dsn says"`
	Path  string             `json:"path" doc:"the SQLite file; relative to the daemon's working directory"`
	Table string             `json:"table" default:"outbox" min:"1" max:"300" doc:"the outbox table, with its schema where it needs one; a name that has a full stop is quoted as the database does"`
	// Columns maps the default names to the table's own; nil stands for a column that the table does not have.
	Columns map[string]*string `json:"columns" doc:"the table's own names of columns; null for an optional column it does not have"`
	// HeaderColumns maps names of headers to columns.
	HeaderColumns  map[string]string `json:"header_columns" doc:"more columns that are sent as headers: header name to column"`
	Poll           Poll              `json:"poll" doc:"pause between two looks that find nothing"`
	Notify         string            `json:"notify" enum:"producer,trigger" doc:"who sends a NOTIFY for new rows, on postgres; absent: nobody, and polling finds them"`
	MaxTransaction settings.Duration `json:"max_transaction" max:"24h" doc:"on mysql without the PROCESS privilege: how long a transaction that inserts rows lasts at most; default 1m"`
}

// Poll bounds the pause between two reads that find nothing.
type Poll struct {
	Min settings.Duration `json:"min" default:"20ms" min:"1ms" max:"1m"`
	Max settings.Duration `json:"max" default:"500ms" min:"1ms" max:"1m"`
}

// Sink is a destination; what its settings mean only its plugin knows.
type Sink struct {
	Plugin string `json:"plugin" required:"true" doc:"kafka, rabbitmq, webhook, file, or NAME of a connectd-sink-NAME in plugin_dir"`
	// Settings is a JSON object of all keys but plugin, in the order of the file. Numbers are as they were written;
	// what came from a variable is a string. It may hold secrets.
	Settings []byte `json:"-"`

	positions *value
}

// Process is how the sink's process is run.
type Process struct {
	StartTimeout settings.Duration `json:"start_timeout" default:"10s" min:"100ms" max:"10m" doc:"until the process must have said hello"`
	SHA256       string            `json:"sha256" doc:"hexadecimal digest the program must have; empty: any"`
	Env          []string          `json:"env" doc:"names of the environment variables the process inherits"`
}

// Delivery is how records are sent.
type Delivery struct {
	Ordering    string            `json:"ordering" default:"key" enum:"key,none,commit" doc:"key: records of one key arrive in order; commit, on postgres: and no row is sent while a transaction runs that could commit an earlier one"`
	Batch       Batch             `json:"batch" doc:"upper bounds of one call"`
	InFlight    int               `json:"in_flight" min:"1" max:"1024" doc:"batches on their way at once; default: what the sink prefers, else 8"`
	Timeout     settings.Duration `json:"timeout" default:"30s" min:"10ms" max:"1h" doc:"of one call"`
	Lease       settings.Duration `json:"lease" default:"30s" min:"1s" max:"1h" doc:"after which a dead worker's work is taken over"`
	Drain       settings.Duration `json:"drain" default:"15s" max:"1h" doc:"how long a shutdown waits for running calls"`
	Retry       Retry             `json:"retry" doc:"of records that failed"`
	OnDead      string            `json:"on_dead" default:"continue" enum:"continue,block" doc:"whether a dead row's key goes on or waits for a person"`
	OnUncertain string            `json:"on_uncertain" default:"redeliver" enum:"redeliver,hold" doc:"whether a row that may have been sent is sent again or waits for a person"`
}

// Batch bounds one call.
type Batch struct {
	MaxRecords int            `json:"max_records" min:"1" max:"10000" doc:"default: what the sink prefers, else 500"`
	MaxBytes   settings.Bytes `json:"max_bytes" default:"1MiB" min:"1" max:"64MiB"`
}

// Retry says when a failed record is tried again and when it is given up.
type Retry struct {
	Initial     settings.Duration `json:"initial" default:"500ms" min:"1ms" max:"168h" doc:"the first wait; doubles with each attempt"`
	Max         settings.Duration `json:"max" default:"5m" min:"1ms" max:"168h" doc:"the longest wait"`
	GiveUpAfter settings.Duration `json:"give_up_after" default:"24h" doc:"since the first failure; 0s: never"`
	MaxAttempts int               `json:"max_attempts" default:"0" min:"0" doc:"0: only the time limits"`
}

// Retention is how long finished rows are kept.
type Retention struct {
	Published      Keep `json:"published" default:"24h" doc:"a duration, or keep; 0s deletes a row when it is delivered, or with require_receipt when its receipt is there"`
	RequireReceipt bool `json:"require_receipt" default:"false" doc:"clean up only rows whose receipt is stored"`
	Dead           Keep `json:"dead" default:"keep" doc:"a duration, or keep; dead rows that are older are removed, and counted"`
	Skipped        Keep `json:"skipped" default:"keep" doc:"a duration, or keep"`
	Receipts       Keep `json:"receipts" default:"30d" doc:"a duration, or keep; counted from the later of a receipt's coming and its row's cleaning"`
}

// Audit is what the books must agree with.
type Audit struct {
	// Events is nil when nobody said where commands come from.
	Events        *Events           `json:"events" doc:"where commands come from; absent: what needs it is not checked"`
	ReceiptWithin settings.Duration `json:"receipt_within" min:"1s" doc:"after its delivery a row must have a receipt so soon; default: 24h with retention.require_receipt, else never"`
	Timeout       settings.Duration `json:"timeout" default:"10m" min:"1s" max:"24h" doc:"of one audit"`
	Every         settings.Duration `json:"every" min:"1m" doc:"how often the daemon audits; absent: when it is asked"`
}

// Events is the rule that says which commands there must be. Where and Command are SQL of the operator's own.
type Events struct {
	Table   string `json:"table" required:"true" min:"1" max:"300" doc:"the events table or a view, with its schema where it needs one"`
	Key     string `json:"key" required:"true" min:"1" doc:"the column that identifies an event"`
	Where   string `json:"where" doc:"SQL condition of the events that give a command; absent: all do"`
	Command string `json:"command" doc:"SQL expression over an event's columns: the id of its command"`
	Join    string `json:"join" doc:"instead of command: the column of the outbox table that holds the event's key"`
}

// Keep is how long rows stay: For, or Forever.
type Keep struct {
	Forever bool
	For     time.Duration
}

// UnmarshalText reads "keep" or a duration.
func (k *Keep) UnmarshalText(text []byte) error {
	if string(text) == "keep" {
		*k = Keep{Forever: true}
		return nil
	}
	d, err := settings.ParseDuration(string(text))
	if err != nil {
		return errKeep
	}
	*k = Keep{For: d}
	return nil
}

// Pos is a place in a file; lines and columns count from 1, columns in characters. Line 0 is the whole file.
type Pos struct {
	File         string
	Line, Column int
}

// known says whether p is a place at all.
func (p Pos) known() bool { return p.File != "" }

// String is "file:line:column".
func (p Pos) String() string {
	if p.Line == 0 {
		return p.File
	}
	return p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column)
}

// Locate returns the place of the sink setting that an RFC 6901 JSON pointer names, or of its nearest parent that is
// there.
func (c *Connector) Locate(pointer string) Pos {
	if c.Sink.positions == nil {
		return c.Pos
	}
	return c.Sink.positions.find(pointer).pos
}

// Locate returns "file:line:column" of a setting of a connector's sink, like Connector.Locate; "" for a connector that
// is not there.
func (c *Config) Locate(connector, pointer string) string {
	for i := range c.Connectors {
		if c.Connectors[i].Name == connector {
			return c.Connectors[i].Locate(pointer).String()
		}
	}
	return ""
}
