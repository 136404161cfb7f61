package rabbitmq

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/connectd/connectd/sinks/rabbitmq/publisher"
)

func documentation(t *testing.T) string {
	t.Helper()
	return string(must(os.ReadFile("../../docs/sinks/rabbitmq.md")))
}

// settingsOf lists the settings of a struct by their names, and what their tags say of the default: the text, "required",
// or "" where there is none.
func settingsOf(t reflect.Type, prefix string, into map[string]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		name := prefix + f.Tag.Get("json")
		_, isText := reflect.New(f.Type).Interface().(interface{ UnmarshalText([]byte) error })
		switch {
		case f.Anonymous:
			settingsOf(f.Type, prefix, into)
			continue
		case f.Type.Kind() == reflect.Struct && !isText:
			settingsOf(f.Type, name+".", into)
			continue
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			settingsOf(f.Type.Elem(), name+"[].", into)
		}
		into[name] = f.Tag.Get("default")
		if f.Tag.Get("required") == "true" {
			into[name] = "required"
		}
	}
}

// TestDocumentedSettings compares the table with the settings, both ways.
func TestDocumentedSettings(t *testing.T) {
	settings := map[string]string{}
	settingsOf(reflect.TypeFor[config](), "", settings)
	_, table, _ := strings.Cut(documentation(t), "| setting | default | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.\\[\\]]+)` \\| (`[^`]*`|.*?) \\|").FindAllStringSubmatch(table, -1) {
		if _, twice := documented[m[1]]; twice {
			t.Errorf("%s is there twice", m[1])
		}
		documented[m[1]] = m[2]
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		want, got := settings[name], documented[name]
		if want != "" && want != "required" {
			want = "`" + want + "`"
		}
		if got == "" || want != "" && got != want {
			t.Errorf("%s has the default %q and is documented with %q", name, want, got)
		}
	}
	for name := range documented {
		if _, known := settings[name]; !known {
			t.Errorf("%s is documented and unknown", name)
		}
	}
}

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
