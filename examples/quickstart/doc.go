// Package quickstart is the smallest example: run.sh shows an application with an outbox in SQLite, and connectd
// relaying it to a file.
package quickstart
