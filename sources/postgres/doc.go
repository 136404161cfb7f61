// Package postgres is the source of an outbox table in a PostgreSQL database, version 13 or later.
package postgres
