// Package services hands the addresses of real servers to tests, and drivers for other languages.
//
// `scripts/services.sh` starts the servers. `make test` runs every test with their addresses in the environment; there
// a missing address fails the test. `go test` alone skips the tests that ask for one. To run a few of them:
//
//	scripts/services.sh up postgres
//	eval "$(scripts/services.sh env)"
//	go test ./sources/postgres
//
// All tests share these servers, and packages are tested at the same time: a test makes its own databases, topics and
// queues under names of its own and removes them, and leaves the server's settings alone. A test that stops a server, or
// changes it for everybody, takes one for itself with Own. One that takes a server away from its own client alone puts
// package proxy between them.
package services

import (
	"os"
	"strings"
	"testing"
)

const (
	postgres           = "CONNECTD_TEST_POSTGRES_DSN"
	pgBouncer          = "CONNECTD_TEST_PGBOUNCER_DSN"
	mysql              = "CONNECTD_TEST_MYSQL_DSN"
	mariaDB            = "CONNECTD_TEST_MARIADB_DSN"
	rabbitMQ           = "CONNECTD_TEST_RABBITMQ_URL"
	rabbitMQManagement = "CONNECTD_TEST_RABBITMQ_MGMT_URL"
	kafka              = "CONNECTD_TEST_KAFKA_BROKERS"
	pythonPath         = "CONNECTD_TEST_PYTHONPATH"
	nodePath           = "CONNECTD_TEST_NODE_PATH"
)

// Postgres is a URL with a superuser's name and password, for PostgreSQL itself.
func Postgres(t testing.TB) string { t.Helper(); return shared(t, postgres) }

// PgBouncer is a URL for the same databases as Postgres, through PgBouncer in transaction mode.
func PgBouncer(t testing.TB) string { t.Helper(); return shared(t, pgBouncer) }

// MySQL is a data source name in the form of github.com/go-sql-driver/mysql, of a user who may do anything.
func MySQL(t testing.TB) string { t.Helper(); return shared(t, mysql) }

// MariaDB is the same for MariaDB.
func MariaDB(t testing.TB) string { t.Helper(); return shared(t, mariaDB) }

// RabbitMQ is an AMQP URL of an administrator, with the virtual host "/".
func RabbitMQ(t testing.TB) string { t.Helper(); return shared(t, rabbitMQ) }

// RabbitMQManagement is the URL of the HTTP API of the same server, with the administrator's name and password. The API's
// paths follow it: "/api/overview".
func RabbitMQManagement(t testing.TB) string { t.Helper(); return shared(t, rabbitMQManagement) }

// Kafka is the list of bootstrap servers, without TLS and authentication.
func Kafka(t testing.TB) []string { t.Helper(); return strings.Split(shared(t, kafka), ",") }

// PythonPath is the folder, for PYTHONPATH, of the drivers psycopg and PyMySQL.
func PythonPath(t testing.TB) string { t.Helper(); return drivers(t, pythonPath) }

// NodePath is the folder, for NODE_PATH, of the drivers pg and mysql2.
func NodePath(t testing.TB) string { t.Helper(); return drivers(t, nodePath) }

func shared(t testing.TB, variable string) string {
	t.Helper()
	return demand(t, variable, "needs a real server: %s is not set (make test starts all of them, scripts/services.sh some)")
}

func drivers(t testing.TB, variable string) string {
	t.Helper()
	return demand(t, variable, "NOT RUN, needs drivers for another language: %s is not set (make test fetches them, and so does scripts/services.sh drivers)")
}

// demand is the value of the variable. Where servers are demanded a missing one fails the test, else it skips it with
// words that take the variable's name.
func demand(t testing.TB, variable, skip string) string {
	t.Helper()
	value := os.Getenv(variable)
	switch {
	case value != "":
	case os.Getenv("CONNECTD_TEST_SERVICES") == "1":
		t.Fatalf("%s is not set, and CONNECTD_TEST_SERVICES=1 demands it", variable)
	default:
		t.Skipf(skip, variable)
	}
	return value
}
