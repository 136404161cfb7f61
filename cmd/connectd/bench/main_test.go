//go:build linux

package bench

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/connectd/connectd/plugins"
)

var reportTo = flag.String("report", "", "write the figures as JSON to this `FILE` too")

// nullProgram is the null sink's file in a plugin directory, discardProgram the reader at a bare socket's other end.
const (
	nullProgram    = "connectd-sink-null"
	discardProgram = "discard"
	// receiverProgram takes webhooks.
	receiverProgram = "receiver"
	// fakeKafkaProgram is a Kafka broker in memory.
	fakeKafkaProgram = "kfake"
)

// TestMain lets this test binary be the null sink's process, the far end of a bare socket, a receiver of webhooks, and a
// fake broker.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case nullProgram:
		plugins.Serve(&nullSink{})
	case discardProgram:
		_, _ = io.Copy(io.Discard, os.Stdin)
	case receiverProgram:
		if err := serveReceiver(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "receiver:", err)
			os.Exit(1)
		}
	case fakeKafkaProgram:
		if err := serveFakeKafka(); err != nil {
			fmt.Fprintln(os.Stderr, "fake broker:", err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// BenchmarkGoals measures all figures, each for as many rounds as -benchtime Nx says, and prints them as one table.
// A goal that was missed is said there and is no failure.
func BenchmarkGoals(b *testing.B) {
	r := &report{machine: lookAtMachine(b)}
	p := buildPrograms(b)
	b.Run("drain", r.rounds(p, benchmarkDrain))
	b.Run("boundary", r.rounds(p, benchmarkBoundary))
	b.Run("webhook", r.rounds(p, benchmarkWebhook))
	b.Run("kafka", r.withBroker(p, "Kafka sink's process / bare client", kafkaBrokers, benchmarkKafkaSink))
	b.Run("kfake", r.rounds(p, benchmarkFakeKafkaSink))
	b.Run("rabbitmq", r.withBroker(p, "RabbitMQ sink's process / bare client", "CONNECTD_TEST_RABBITMQ_URL", benchmarkRabbitSink))
	b.Run("latency", r.rounds(p, benchmarkLatency))
	b.Run("idle", r.rounds(p, benchmarkIdle))
	b.Run("start", r.rounds(p, benchmarkStart))
	b.Run("kill", r.rounds(p, benchmarkKill))
	b.Run("sqlite-clean", r.rounds(p, benchmarkSQLiteClean))
	b.Run("sqlite-audit", r.rounds(p, benchmarkSQLiteAudit))
	benchmarkServers(b, p, r)
	if b.Failed() {
		return
	}
	if err := r.table(os.Stdout); err != nil {
		b.Fatal(err)
	}
	if *reportTo != "" {
		if err := r.writeJSON(*reportTo); err != nil {
			b.Fatal(err)
		}
	}
}

const postgresDSN = "CONNECTD_TEST_POSTGRES_DSN"

// benchmarkServers measures on the database servers whose addresses are in the environment.
func benchmarkServers(b *testing.B, p programs, r *report) {
	pg, found := openServer(b, "PostgreSQL", "postgres", "pgx", postgresDSN)
	if found && pg.ours {
		defer tunePostgres(b, pg)()
	}
	for _, each := range []struct {
		name, figures string
		f             func(*testing.B, programs, *server, *report)
	}{
		{"postgres-drain", "PostgreSQL drains of 100k rows", benchmarkPostgresDrain},
		{"postgres-large", "PostgreSQL drains of 1M rows", benchmarkPostgresLarge},
		{"postgres-clean", "PostgreSQL drain beside the cleaner", benchmarkPostgresClean},
		{"postgres-audit", "PostgreSQL audit", benchmarkPostgresAudit},
		{"postgres-wal", "PostgreSQL relay's WAL", benchmarkPostgresWAL},
		{"postgres-snapshot", "PostgreSQL beside a held snapshot", benchmarkPostgresSnapshot},
		{"postgres-producers", "PostgreSQL producers beside the relay", benchmarkPostgresProducers},
		{"postgres-latency", "PostgreSQL, commit → delivered", benchmarkPostgresLatency},
		{"postgres-kafka", postgresKafka, benchmarkPostgresKafka},
	} {
		b.Run(each.name, r.withServer(p, pg, each.figures, postgresDSN, each.f))
	}
	for _, each := range []struct{ name, variable string }{{"MySQL", "CONNECTD_TEST_MYSQL_DSN"}, {"MariaDB", "CONNECTD_TEST_MARIADB_DSN"}} {
		s, found := openServer(b, each.name, "mysql", "mysql", each.variable)
		if found && s.ours {
			defer tuneMySQL(b, s)()
		}
		b.Run(strings.ToLower(each.name)+"-drain", r.withServer(p, s, each.name+" drains", each.variable, benchmarkMySQLDrain))
		b.Run(strings.ToLower(each.name)+"-clean", r.withServer(p, s, each.name+" drain beside the cleaner", each.variable, benchmarkMySQLClean))
		b.Run(strings.ToLower(each.name)+"-audit", r.withServer(p, s, each.name+" audit", each.variable, benchmarkMySQLAudit))
	}
}
