package webhook

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	syntax "text/template/parse"
)

// unknownField finds a field that no record has, where the template can only mean the record: outside of range and
// with, and behind a $. A sample record does not find it in a branch that is not taken, or behind a value that only
// rows have.
func (b *bodyText) unknownField() error {
	var f fieldFinder
	f.list(b.text.Root, true)
	for _, name := range f.names {
		if known := bodyFields(); !slices.Contains(known, name) {
			return fmt.Errorf("has a field .%s that no record has; there are .%s", name, strings.Join(known, ", ."))
		}
	}
	return nil
}

// bodyFields lists what a body template can ask a record for.
func bodyFields() []string {
	t := reflect.TypeFor[*bodyData]()
	var names []string
	for i := range t.Elem().NumField() {
		if field := t.Elem().Field(i); field.IsExported() {
			names = append(names, field.Name)
		}
	}
	for i := range t.NumMethod() {
		names = append(names, t.Method(i).Name)
	}
	return names
}

// fieldFinder collects the fields of the record that a template names.
type fieldFinder struct{ names []string }

// list walks the nodes of a block. record says whether the dot is the record there.
func (f *fieldFinder) list(l *syntax.ListNode, record bool) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *syntax.ActionNode:
			f.pipe(n.Pipe, record)
		case *syntax.TemplateNode:
			f.pipe(n.Pipe, record)
		case *syntax.IfNode:
			f.branch(&n.BranchNode, record, record)
		case *syntax.RangeNode:
			f.branch(&n.BranchNode, record, false)
		case *syntax.WithNode:
			f.branch(&n.BranchNode, record, false)
		}
	}
}

func (f *fieldFinder) branch(b *syntax.BranchNode, record, inside bool) {
	f.pipe(b.Pipe, record)
	f.list(b.List, inside)
	f.list(b.ElseList, record)
}

func (f *fieldFinder) pipe(p *syntax.PipeNode, record bool) {
	if p == nil {
		return
	}
	for _, command := range p.Cmds {
		for _, arg := range command.Args {
			f.value(arg, record)
		}
	}
}

func (f *fieldFinder) value(n syntax.Node, record bool) {
	switch n := n.(type) {
	case *syntax.FieldNode:
		if record {
			f.names = append(f.names, n.Ident[0])
		}
	case *syntax.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			f.names = append(f.names, n.Ident[1])
		}
	case *syntax.ChainNode:
		f.value(n.Node, record)
	case *syntax.PipeNode:
		f.pipe(n, record)
	}
}
