package rabbitmq

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/connectd/connectd/core/settings/settingstest"
	"github.com/connectd/connectd/sinks/rabbitmq/publisher"
)

func documentation(t *testing.T) string {
	t.Helper()
	return string(must(os.ReadFile("../../docs/sinks/rabbitmq.md")))
}

// TestDocumentedSettings compares the table with the settings, both ways.
func TestDocumentedSettings(t *testing.T) { settingstest.Table(t, documentation(t), config{}) }

// TestDocumentedMessage makes the message of the documentation's row.
func TestDocumentedMessage(t *testing.T) {
	m := composed(t, `{"exchange":"shop","routing_key":"{type}"}`, order())
	p := m.Publishing
	var b strings.Builder
	for _, line := range [][2]any{
		{"exchange", m.Exchange}, {"routing key", m.RoutingKey}, {"message-id", p.MessageId}, {"type", p.Type}, {"content-type", p.ContentType},
		{"delivery-mode", p.DeliveryMode}, {"timestamp", p.Timestamp.Unix()}, {"app-id", p.AppId},
	} {
		fmt.Fprintf(&b, "%-14s %v\n", line[0], line[1])
	}
	b.WriteString("headers\n")
	for _, name := range sortedNames(p.Headers) {
		fmt.Fprintf(&b, "  %-20s %v\n", name, p.Headers[name])
	}
	fmt.Fprintf(&b, "body\n  %s\n", p.Body)
	_, block, _ := strings.Cut(documentation(t), "<!-- message -->\n```\n")
	block, _, _ = strings.Cut(block, "```\n")
	if b.String() != block {
		t.Errorf("the message is\n%s\nthe documentation has\n%s", b.String(), block)
	}
}

// TestDocumentedCodes names every code that an outcome can have.
func TestDocumentedCodes(t *testing.T) {
	_, table, _ := strings.Cut(documentation(t), "## Errors and what to do")
	codes := []string{"unroutable", "behind"} // in the judge's words
	for _, kind := range []publisher.Kind{
		publisher.KindInvalid, publisher.KindNack, publisher.KindMissingExchange, publisher.KindRefused, publisher.KindPrecondition,
		publisher.KindChannel, publisher.KindConnection, publisher.KindTimeout, publisher.KindBlocked,
	} {
		codes = append(codes, string(kind))
	}
	for _, m := range regexp.MustCompile(`unsendable\("([a-z_]+)"`).FindAllStringSubmatch(string(must(os.ReadFile("message.go"))), -1) {
		codes = append(codes, m[1])
	}
	for _, code := range codes {
		if !strings.Contains(table, "`"+code+"`") {
			t.Errorf("the code %s is not documented", code)
		}
	}
}
