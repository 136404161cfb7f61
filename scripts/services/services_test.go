package services_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/scripts/services"
)

// Each address is that of a server that speaks the protocol it is there for. The words are those of the protocols'
// specifications: PostgreSQL's SSLRequest, MySQL's HandshakeV10, AMQP 0-9-1's header, Kafka's ApiVersions.
func TestAddresses(t *testing.T) {
	url := func(t testing.TB, s string) string { return parse(t, s).Host }
	dsn := func(t testing.TB, s string) string {
		return regexp.MustCompile(`tcp\(([^)]*)\)`).FindStringSubmatch(s)[1]
	}
	tests := map[string]struct {
		address func(testing.TB) string
		host    func(testing.TB, string) string
		say     string
		hear    string
	}{
		"postgres":  {services.Postgres, url, "\x00\x00\x00\x08\x04\xd2\x16\x2f", `^[SN]`},
		"pgbouncer": {services.PgBouncer, url, "\x00\x00\x00\x08\x04\xd2\x16\x2f", `^[SN]`},
		"mysql":     {services.MySQL, dsn, "", `^.{3}\x00\x0a[89]\.[0-9]+\.[0-9]+[^\x00]*\x00`},
		"mariadb":   {services.MariaDB, dsn, "", `^.{3}\x00\x0a(5\.5\.5-)?1[0-9]\.[^\x00]*MariaDB[^\x00]*\x00`},
		"rabbitmq":  {services.RabbitMQ, url, "AMQP\x00\x00\x09\x01", `^\x01\x00\x00.{4}\x00\x0a\x00\x0a.*RabbitMQ`},
		"kafka": {func(t testing.TB) string { return services.Kafka(t)[0] }, func(_ testing.TB, s string) string { return s },
			"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff", `^.{4}\x00\x00\x00\x07\x00\x00`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			talk(t, tt.host(t, tt.address(t)), tt.say, tt.hear)
		})
	}
}

func TestRabbitMQManagement(t *testing.T) {
	address := parse(t, services.RabbitMQManagement(t)+"/api/whoami")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Timeout: 30 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || !bytes.Contains(body, []byte("administrator")) {
		t.Errorf("who we are: %s %s, %v", response.Status, body, err)
	}
}

// A server of one's own ends and comes back at the same address, however it ended, and does not touch the shared one.
func TestOwn(t *testing.T) {
	own := services.Own(t, "postgres")
	address := parse(t, own.Postgres()).Host
	if theirs := parse(t, services.Postgres(t)).Host; theirs == address {
		t.Fatalf("the own server is the shared one, %s", theirs)
	}
	const hello, answer = "\x00\x00\x00\x08\x04\xd2\x16\x2f", `^[SN]`
	talk(t, address, hello, answer)
	for name, end := range map[string]func(string){"stop": own.Stop, "kill": own.Kill} {
		end("postgres")
		if c, err := net.DialTimeout("tcp", address, 10*time.Second); err == nil {
			c.Close()
			t.Errorf("after %s something still listens at %s", name, address)
		}
		own.Start("postgres")
		talk(t, address, hello, answer)
	}
}

func parse(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// talk says something and reads until the answer matches.
func talk(t testing.TB, address, say, hear string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, say); err != nil {
		t.Fatal(err)
	}
	var heard strings.Builder
	// Each byte as a rune of its own, so that the pattern can name any.
	for r, want := bufio.NewReader(c), regexp.MustCompile("(?s)"+hear); !want.MatchString(heard.String()); {
		b, err := r.ReadByte()
		if err != nil {
			t.Fatalf("heard %q, then %v; want %s", heard.String(), err, hear)
		}
		heard.WriteRune(rune(b))
	}
}
