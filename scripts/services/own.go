package services

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// How long the script may take for one thing; it has shorter limits of its own.
const patience = 5 * time.Minute

// Servers are one test's own. Its methods end the test when they fail and are for the test's goroutine, unless
// they return an error.
type Servers struct {
	t       testing.TB
	script  string
	dir     string
	tls     string // folder of a certificate, "" for none
	clock   string // how far off it is, "" for not at all
	address map[string]string
}

// Own starts servers that nobody else uses, so that the test may break them: some of "postgres", "pgbouncer" (which
// brings postgres), "mysql", "mariadb", "rabbitmq" and "kafka". It takes a second or two for a database, five or ten for
// a broker. They are gone when the test ends. It skips and fails as Postgres does.
func Own(t testing.TB, names ...string) *Servers {
	t.Helper()
	return own(t, Servers{}, names...)
}

// OwnTLS is Own for "mysql" and "mariadb" with the certificate cert.pem and the key key.pem in dir. They refuse
// connections without TLS.
func OwnTLS(t testing.TB, dir string, names ...string) *Servers {
	t.Helper()
	return own(t, Servers{tls: dir}, names...)
}

// OwnClock is Own for "postgres" and "mariadb" with a clock that is off by so much; SetClock lets it jump. Only the
// time of day is off, for all processes of the servers alike. It fails where servers run in containers.
func OwnClock(t testing.TB, off time.Duration, names ...string) *Servers {
	t.Helper()
	return own(t, Servers{clock: seconds(off)}, names...)
}

func own(t testing.TB, with Servers, names ...string) *Servers {
	t.Helper()
	s := &with
	s.t, s.script, s.dir, s.address = t, shared(t, "CONNECTD_TEST_SERVICES_SH"), t.TempDir(), map[string]string{}
	t.Cleanup(func() { s.run("down") })
	s.run("up", names...)
	for line := range strings.Lines(s.run("env")) {
		name, quoted, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		s.address[name] = strings.Trim(quoted, "'")
	}
	return s
}

// Postgres is as the function of that name; so are the other addresses.
func (s *Servers) Postgres() string { s.t.Helper(); return s.of(postgres) }

// PgBouncer is as the function of that name.
func (s *Servers) PgBouncer() string { s.t.Helper(); return s.of(pgBouncer) }

// MySQL is as the function of that name.
func (s *Servers) MySQL() string { s.t.Helper(); return s.of(mysql) }

// MariaDB is as the function of that name.
func (s *Servers) MariaDB() string { s.t.Helper(); return s.of(mariaDB) }

// RabbitMQ is as the function of that name.
func (s *Servers) RabbitMQ() string { s.t.Helper(); return s.of(rabbitMQ) }

// RabbitMQManagement is as the function of that name.
func (s *Servers) RabbitMQManagement() string { s.t.Helper(); return s.of(rabbitMQManagement) }

// Version is that of a server, with its name: "Apache Kafka 4.3.1".
func (s *Servers) Version(name string) string {
	s.t.Helper()
	return s.of("CONNECTD_TEST_" + strings.ToUpper(name) + "_VERSION")
}

// Kafka is as the function of that name.
func (s *Servers) Kafka() []string { s.t.Helper(); return strings.Split(s.of(kafka), ",") }

// Clock names what keeps the clocks of OwnClock, with its version.
func (s *Servers) Clock() string { s.t.Helper(); return s.of("CONNECTD_TEST_CLOCK") }

// SetClock lets the clock jump to where it is off by so much.
// It may be called from any goroutine.
func (s *Servers) SetClock(off time.Duration) error {
	_, err := s.Try("clock", seconds(off))
	return err
}

// seconds is a time as the script wants it.
func seconds(d time.Duration) string { return fmt.Sprintf("%+.3f", d.Seconds()) }

// Stop ends a server in good order and waits until it is gone.
func (s *Servers) Stop(name string) { s.t.Helper(); s.run("stop", name) }

// Kill ends a server with SIGKILL, all its processes at once, and waits until they are gone.
func (s *Servers) Kill(name string) { s.t.Helper(); s.run("kill", name) }

// Start starts a server again, at the same address and with the same data, and waits until it answers.
func (s *Servers) Start(name string) { s.t.Helper(); s.run("start", name) }

// RabbitMQCtl runs RabbitMQ's command line tool, which does what its HTTP API cannot, and returns what it printed.
func (s *Servers) RabbitMQCtl(args ...string) string {
	s.t.Helper()
	return s.run("rabbitmqctl", args...)
}

func (s *Servers) of(variable string) string {
	s.t.Helper()
	address, ok := s.address[variable]
	if !ok {
		s.t.Fatalf("the test has no server of its own for %s", variable)
	}
	return address
}

// run is Try for the test's goroutine.
func (s *Servers) run(command string, args ...string) string {
	s.t.Helper()
	out, err := s.Try(command, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// Try runs the script with a command, as "start" or "rabbitmqctl", and returns what it printed. It may be called from any
// goroutine, for one server at a time, and in clean-ups, where the test's own context has ended.
func (s *Servers) Try(command string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience) // the script cleans up when it is asked to end
	defer cancel()
	cmd := exec.CommandContext(ctx, s.script, append([]string{command}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), "CONNECTD_SERVICES_DIR="+s.dir, fmt.Sprintf("CONNECTD_SERVICES_OWNER=%d", os.Getpid()),
		"CONNECTD_SERVICES_TLS="+s.tls, "CONNECTD_SERVICES_CLOCK="+s.clock)
	var words bytes.Buffer
	cmd.Stderr = &words
	out, err := cmd.Output()
	if words.Len() > 0 {
		s.t.Logf("services.sh %s %s\n%s", command, strings.Join(args, " "), bytes.TrimSpace(words.Bytes()))
	}
	if err != nil {
		return "", fmt.Errorf("services.sh %s %s: %w", command, strings.Join(args, " "), err)
	}
	return string(out), nil
}
