// Package settings turns a sink's settings, a JSON object, into the sink author's own struct, and that struct into the
// JSON Schema of the settings. It is strict: what is unknown, misspelt, of the wrong type or out of range is a
// diagnostic with its place, and all of them are reported at once.
//
// The struct is described by tags:
//
//	type config struct {
//		Brokers []string          `json:"brokers" required:"true" doc:"host:port of at least one broker"`
//		Acks    string            `json:"acks" default:"all" enum:"all,leader" doc:"whose confirmation counts"`
//		Timeout settings.Duration `json:"timeout" default:"10s" min:"100ms" max:"5m" doc:"of one request"`
//		Buffer  settings.Bytes    `json:"buffer" default:"1MiB" doc:"memory for unsent records"`
//		Pass    settings.Secret   `json:"password" doc:"SASL password"`
//		TLS     *tlsConfig        `json:"tls" doc:"absent: no TLS"`
//	}
//
// Fields may be strings, bools, integers, floats, structs, slices, maps with string keys, pointers to any of these
// (absent or null: nil), Duration, Bytes, Secret, and types with an UnmarshalText method (Numeric ones take bare numbers
// too). A field needs a json tag with its name; json:"-" leaves it alone. The fields of an embedded struct without a tag
// are settings of the struct that embeds it. The other tags:
//
//   - required:"true": the key must be there, and a string, list, map or secret must not be empty.
//   - default:"x": the value when the key is absent; for scalars only. Without it the field keeps what it held.
//   - enum:"a,b": for strings, the values allowed.
//   - min, max: bounds, both included; of the value for numbers, durations and sizes, of the length for strings (in
//     bytes), lists and maps.
//   - doc: a phrase for the schema.
//
// Numbers and bools may also come as strings ("8", "true"), because a value that was substituted from an environment
// variable is always a string.
//
// A message is what follows the name of the setting in a sentence: "is required", "must be 1 to 65535". None ever
// contains a value, since any value may be a secret.
package settings
