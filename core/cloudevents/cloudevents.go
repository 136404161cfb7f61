// Package cloudevents makes CloudEvents 1.0 of records: the context attributes, for a binding to put where it has them, and
// the event as JSON (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md).
package cloudevents

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/jsonrecord"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/template"
)

// The extension attributes. Names may have lower-case letters and digits only.
const (
	PartitionKey = "partitionkey" // the key; a documented extension
	TraceParent  = "traceparent"  // the row's own trace; documented too
	TraceState   = "tracestate"
	Route        = "connectdroute"
	Delivery     = "connectddelivery"  // the number of this send, an Integer
	Duplicate    = "connectdduplicate" // true, or not there
	Epoch        = "connectdepoch"     // a String, because an Integer has 32 bits only
)

// Settings are the settings of a sink that makes events.
type Settings struct {
	Source string `json:"source" default:"/connectd/{connector}" doc:"the events' source, a URI reference; may have {fields}"`
	Type   string `json:"type" default:"{type}" doc:"the events' type; may have {fields}"`
}

// Set says whether something was set that is not the default.
func (s Settings) Set() bool {
	var defaults Settings
	settings.Decode([]byte(`{}`), &defaults) // nothing can be wrong with nothing
	return s != defaults
}

// Mapper makes events of records. It may be used concurrently.
type Mapper struct{ source, kind *template.Template }

// Parse reads the settings, which are those at the pointer ("/cloudevents"), and tries them on a sample record. When there
// is a diagnostic, the Mapper is worth nothing.
func (s Settings) Parse(pointer, connector string) (*Mapper, []core.Diagnostic) {
	var p settings.Problems
	source, err := template.Parse(s.Source, connector)
	if err != nil {
		p.Wrong(pointer+"/source", "%v", err)
	}
	kind, err := template.Parse(s.Type, connector)
	if err != nil {
		p.Wrong(pointer+"/type", "%v", err)
	}
	if source != nil {
		sample := template.Sample("sample", s.Source)
		text, err := source.Expand(&sample, template.EscapeURL)
		p.WrongIf(err != nil || !isReference(text), pointer+"/source", "must be a URI reference, such as https://example.com/shop or /shop")
	}
	return &Mapper{source, kind}, p
}

func isReference(s string) bool {
	_, err := url.Parse(s)
	strange := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }
	return err == nil && s != "" && !strings.ContainsFunc(s, strange)
}

// Attribute is one context attribute of an event.
type Attribute struct {
	Name string
	// Value is the attribute's canonical string form, which every binding allows. It is UTF-8 as far as the record is.
	Value string
	// Literal says that JSON has the value as it is written, without quotes: it is an Integer or a Boolean.
	Literal bool
}

// Attributes are the event's in the order in which they are written, specversion first; datacontenttype is for the caller
// to add, as bindings have it in a place of its own. Empty ones are left out, as the specification has none. The error
// says why the record makes no event, whenever it is tried.
func (m *Mapper) Attributes(r *core.Record) ([]Attribute, error) {
	source, err := m.source.Expand(r, template.EscapeURL)
	if err != nil {
		return nil, fmt.Errorf("cloudevents.source: %w", err)
	}
	kind, err := m.kind.Expand(r, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cloudevents.type: %w", err)
	case kind == "" || source == "" || r.ID == "":
		return nil, errors.New("a CloudEvent cannot be without an id, a source or a type")
	}
	traceParent, _ := r.Header(TraceParent)
	traceState, _ := r.Header(TraceState)
	all := []Attribute{
		{Name: "specversion", Value: "1.0"},
		{Name: "id", Value: r.ID},
		{Name: "source", Value: source},
		{Name: "type", Value: kind},
		{Name: "time", Value: jsonrecord.Time(r.CreatedAt)},
		{Name: Delivery, Value: strconv.Itoa(r.Deliveries), Literal: true},
		{Name: Epoch, Value: strconv.FormatInt(r.Epoch, 10)},
		{Name: "subject", Value: r.Key},
		{Name: PartitionKey, Value: r.Key},
		{Name: Route, Value: r.Route},
		{Name: TraceParent, Value: traceParent},
		{Name: TraceState, Value: traceState},
	}
	all = slices.DeleteFunc(all, func(a Attribute) bool { return a.Value == "" })
	if r.PossibleDuplicate() {
		all = append(all, Attribute{Name: Duplicate, Value: "true", Literal: true})
	}
	return all, nil
}
