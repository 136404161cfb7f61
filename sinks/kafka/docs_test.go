package kafka

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core/settings/settingstest"
)

func documentation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/sinks/kafka.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocumentedSettings compares the table with the settings, both ways.
func TestDocumentedSettings(t *testing.T) {
	settingstest.Table(t, documentation(t), config{}, "create_topics", "sasl", "tls")
}

// TestDocumentedMessage holds that the documentation's row becomes its message.
func TestDocumentedMessage(t *testing.T) {
	m := composed(t, settingsWith(`,"topic":"orders"`), order())
	var got strings.Builder
	fmt.Fprintf(&got, "topic: %s\ntime: %s\nkey: %s\n", m.Topic, m.Time.UTC().Format("2006-01-02T15:04:05.000Z07:00"), m.Key)
	for _, h := range m.Headers {
		fmt.Fprintf(&got, "header %s: %s\n", h.Name, h.Value)
	}
	fmt.Fprintf(&got, "value: %s\n", m.Value)
	_, text, _ := strings.Cut(documentation(t), "<!-- message -->\n```\n")
	text, _, _ = strings.Cut(text, "```\n")
	if got.String() != text {
		t.Errorf("the message is\n%s\nthe documentation has\n%s", got.String(), text)
	}
}

// TestDocumentedCodes names every code that an outcome can have.
func TestDocumentedCodes(t *testing.T) {
	_, table, _ := strings.Cut(documentation(t), "## Errors and what to do")
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	written, found := regexp.MustCompile(`(?m)^\tcode[A-Za-z]+ += "([a-z_]+)"`), 0
	for _, file := range files {
		source, err := os.ReadFile(file.Name())
		if err != nil || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		for _, m := range written.FindAllStringSubmatch(string(source), -1) {
			found++
			if !strings.Contains(table, "`"+m[1]+"`") {
				t.Errorf("the code %s of %s is not documented", m[1], file.Name())
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d codes were found", found)
	}
}

// TestDocumentedFields has the documentation's templates in settings that are taken.
func TestDocumentedFields(t *testing.T) {
	r := order()
	m := composed(t, settingsWith(`,"topic":"orders.{type}","key":"{header:tenant|none}:{key}"`), r)
	for _, line := range []string{`topic: "orders.{type}"`, `key: "{header:tenant|none}:{key}"`} {
		if !strings.Contains(documentation(t), line) {
			t.Errorf("%s is not in the documentation", line)
		}
	}
	if m.Topic != "orders.OrderPlaced" || string(m.Key) != "none:order-7" || !m.Time.Equal(time.Date(2026, 3, 29, 1, 30, 0, 123_456_000, time.UTC)) {
		t.Errorf("%+v", m)
	}
}
