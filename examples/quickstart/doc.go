// Package quickstart is the smallest example: run.sh shows an application with an outbox in SQLite, and connectd
// relaying it as signed webhooks to a receiver.
package quickstart
