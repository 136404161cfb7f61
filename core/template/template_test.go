package template_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/template"
)

func record() *core.Record {
	return &core.Record{
		ID: "c-1", Key: "a/b ü", Keyed: true, Route: "orders", Type: "OrderPlaced",
		Headers: []core.Header{{Name: "tenant", Value: "t 1"}, {Name: "empty", Value: ""}},
	}
}

func TestExpand(t *testing.T) {
	bare := &core.Record{ID: "c-2"}
	emptyKey := &core.Record{ID: "c-3", Keyed: true}
	for _, c := range []struct {
		text   string
		record *core.Record
		want   string
	}{
		{"", record(), ""},
		{"plain", record(), "plain"},
		{"orders.{type}", record(), "orders.OrderPlaced"},
		{"{id}{key}{route}", record(), "c-1a/b üorders"},
		{"{connector}/{header:tenant}", record(), "shop/t 1"},
		{"{{{type}}}", record(), "{OrderPlaced}"},
		{"{{type}}", record(), "{type}"},
		{"<{header:empty}>", record(), "<>"}, // present and empty is a value
		{"<{key}>", emptyKey, "<>"},
		{"{key|none}", bare, "none"},
		{"<{type|}>", bare, "<>"},
		{"{header:x|a:b|c}", bare, "a:b|c"},
		{"{type|other}", record(), "OrderPlaced"},
	} {
		tmpl, err := template.Parse(c.text, "shop")
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got, err := tmpl.Expand(c.record, nil); got != c.want || err != nil {
			t.Errorf("%q: got %q, %v; want %q", c.text, got, err, c.want)
		}
	}
}

func TestExpandEscapesValuesOnly(t *testing.T) {
	tmpl, err := template.Parse("/a/{key}/{header:x|b/c}", "shop")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tmpl.Expand(record(), url.PathEscape); got != "/a/a%2Fb%20%C3%BC/b%2Fc" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestMissingValueIsAnError(t *testing.T) {
	bare := &core.Record{ID: "c-2"}
	for text, want := range map[string]string{
		"{key}": "the record has no key", "x{route}": "the record has no route", "{type}": "the record has no type",
		"{header:tenant}": `the record has no header "tenant"`,
	} {
		tmpl, err := template.Parse(text, "shop")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tmpl.Expand(bare, nil); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"é{":           "has a { at character 2 without its }",
		"a}b":          "has a } at character 2 without its {",
		"{a{id}":       "has a { at character 1 without its }",
		"x{topic}":     "has at character 2 no known field; there are {id}, {key}, {route}, {type}, {connector} and {header:NAME}",
		"{}":           "no known field",
		"{ id }":       "no known field",
		"{header:}":    "{header:NAME} without the name",
		"{header}":     "{header:NAME} without the name",
		"{header:|x}":  "{header:NAME} without the name",
		"{id:x}":       "no known field",
		"hunter2{nope": "has a { at character 8",
	} {
		_, err := template.Parse(text, "shop")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error shows the text: %v", text, err)
		}
	}
}

func TestFixed(t *testing.T) {
	for text, want := range map[string]bool{"": true, "a": true, "{connector}": true, "{{id}}": true, "a{id}": false, "{key|x}": false} {
		tmpl, err := template.Parse(text, "shop")
		if err != nil {
			t.Fatal(err)
		}
		if tmpl.Fixed() != want {
			t.Errorf("%q: Fixed is %v", text, !want)
		}
	}
}

// FuzzParse holds that what parses expands, and that doubling every brace gives the text back.
func FuzzParse(f *testing.F) {
	f.Add("orders.{type}")
	f.Add("{header:x|}{{}}{key|{")
	f.Fuzz(func(t *testing.T, text string) {
		if tmpl, err := template.Parse(text, "c"); err == nil {
			_, _ = tmpl.Expand(record(), strings.ToUpper)
		}
		doubled := strings.NewReplacer("{", "{{", "}", "}}").Replace(text)
		tmpl, err := template.Parse(doubled, "c")
		if err != nil {
			t.Fatalf("%q: %v", doubled, err)
		}
		if got, err := tmpl.Expand(record(), nil); got != text || err != nil {
			t.Fatalf("%q: got %q, %v", doubled, got, err)
		}
	})
}
