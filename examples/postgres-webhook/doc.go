// Package postgreswebhook is an example: run.sh shows an application with an outbox in PostgreSQL and two daemons that
// share it. They relay its commands as signed webhooks, in order for each customer, to the receiver of examples/quickstart.
// A command that cannot be sent is looked at, mended and sent again.
package postgreswebhook
