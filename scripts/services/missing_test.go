package services_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/connectd/connectd/scripts/services"
)

// Where nobody demands servers their tests are skipped, with words that say what to do; where they are demanded, as in
// `make test`, nothing is skipped in silence.
func TestMissing(t *testing.T) {
	for demanded, want := range map[string]string{"": "skipped: ", "1": "failed: CONNECTD_TEST_"} {
		t.Setenv("CONNECTD_TEST_SERVICES", demanded)
		for name, ask := range map[string]func(testing.TB){
			"POSTGRES_DSN":      func(t testing.TB) { services.Postgres(t) },
			"PGBOUNCER_DSN":     func(t testing.TB) { services.PgBouncer(t) },
			"MYSQL_DSN":         func(t testing.TB) { services.MySQL(t) },
			"MARIADB_DSN":       func(t testing.TB) { services.MariaDB(t) },
			"RABBITMQ_URL":      func(t testing.TB) { services.RabbitMQ(t) },
			"RABBITMQ_MGMT_URL": func(t testing.TB) { services.RabbitMQManagement(t) },
			"KAFKA_BROKERS":     func(t testing.TB) { services.Kafka(t) },
			"PYTHONPATH":        func(t testing.TB) { services.PythonPath(t) },
			"NODE_PATH":         func(t testing.TB) { services.NodePath(t) },
			"SERVICES_SH":       func(t testing.TB) { services.Own(t, "postgres") },
		} {
			t.Setenv("CONNECTD_TEST_"+name, "")
			got := ending(t, ask)
			if !strings.HasPrefix(got, want) || !strings.Contains(got, name) || demanded == "" && !strings.Contains(got, "needs ") {
				t.Errorf("demanded=%q, no %s: %s; want %q and the variable's name", demanded, name, got, want)
			}
		}
	}
}

// ending runs f as a test that is not reported and tells how it ended.
func ending(t testing.TB, f func(testing.TB)) (how string) {
	defer func() {
		if end, ok := recover().(end); ok {
			how = string(end)
		}
	}()
	f(unreported{t})
	return "went on"
}

type end string

type unreported struct{ testing.TB }

func (unreported) Skipf(format string, args ...any) {
	panic(end("skipped: " + fmt.Sprintf(format, args...)))
}

func (unreported) Fatalf(format string, args ...any) {
	panic(end("failed: " + fmt.Sprintf(format, args...)))
}
