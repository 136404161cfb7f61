package plugins

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/connectd/connectd/plugins/proto"
)

var update = flag.Bool("update", false, "write testdata/wire.golden")

// TestTheWireChangesOnPurpose lists every message, field, number and type of the protocol. Lines may be added; a line
// that changes or goes breaks every plugin that was built before.
func TestTheWireChangesOnPurpose(t *testing.T) {
	var b strings.Builder
	file := proto.File_sink_proto
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			fmt.Fprintf(&b, "rpc %s/%s(%s) %s\n", s.FullName(), m.Name(), m.Input().Name(), m.Output().Name())
		}
	}
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		fmt.Fprintf(&b, "message %s\n", m.Name())
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			kind := f.Kind().String()
			switch f.Kind() {
			case protoreflect.MessageKind:
				kind = string(f.Message().Name())
			case protoreflect.EnumKind:
				kind = string(f.Enum().Name())
			}
			fmt.Fprintf(&b, "  %s.%s = %d %s %s\n", m.Name(), f.Name(), f.Number(), f.Cardinality(), kind)
		}
	}
	for i := range file.Enums().Len() {
		e := file.Enums().Get(i)
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			fmt.Fprintf(&b, "enum %s.%s = %d\n", e.Name(), v.Name(), v.Number())
		}
	}
	const path = "testdata/wire.golden"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the protocol is no longer what %s says (-update, if it is meant):\n%s", path, b.String())
	}
}
