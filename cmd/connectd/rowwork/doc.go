// Package rowwork is what people do with the rows of an outbox table: look at them, and retry, edit, skip and release those
// that stopped, one or many. The command line and the HTTP API are two ways to it.
package rowwork
