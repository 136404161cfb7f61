package config

import (
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/connectd/connectd/core/settings"
)

// reader turns the nodes of one file into values.
type reader struct {
	file     string
	lookup   func(string) (string, bool)
	anchors  map[string]*value // nil: has a problem
	problems Problems
}

func (r *reader) wrong(pos Pos, at, format string, args ...any) {
	r.problems = append(r.problems, problemAt(pos, at, fmt.Sprintf(format, args...)))
}

// value reads a node. pos is where its key or list item is, at its JSON pointer.
func (r *reader) value(n ast.Node, pos Pos, at string, depth int) *value {
	v := &value{pos: pos, size: 8}
	if depth > maxDepth {
		r.wrong(pos, at, "is nested deeper than %d", maxDepth)
		v.bad = true
		return v
	}
	switch n := n.(type) {
	case nil:
	case *ast.AnchorNode:
		return r.anchor(n, pos, at, depth)
	case *ast.AliasNode:
		return r.alias(n, pos, at, depth)
	case ast.MapNode:
		r.mapping(v, n, at, depth)
	case *ast.SequenceNode:
		r.sequence(v, n, at, depth)
	case *ast.LiteralNode:
		r.scalar(v, n.Value.Value, false, at)
	case *ast.TagNode:
		r.wrong(pos, at, "has the tag %s; tags are not supported, put text in quotes instead", n.Start.Value)
		v.bad = true
	case ast.ScalarNode:
		tk := n.GetToken()
		r.scalar(v, tk.Value, tk.Type != token.SingleQuoteType && tk.Type != token.DoubleQuoteType, at)
	default:
		r.wrong(pos, at, "is no YAML that connectd reads")
		v.bad = true
	}
	if v.size > maxExpanded {
		r.wrong(pos, at, "is larger than %d bytes with its aliases and variables", maxExpanded)
		*v = value{pos: pos, bad: true}
	}
	return v
}

func (r *reader) scalar(v *value, text string, plain bool, at string) {
	text, substituted, err := substitute(text, r.lookup)
	if err != nil {
		r.wrong(v.pos, at, "%v", err)
		v.bad = true
		return
	}
	v.size += len(text)
	v.data = text
	if plain && !substituted {
		v.data = resolve(text)
	}
}

func (r *reader) mapping(v *value, n ast.MapNode, at string, depth int) {
	m := &mapping{values: map[string]*value{}}
	v.data = m
	for iter := n.MapRange(); iter.Next(); {
		tk := iter.Key().GetToken()
		pos := place(r.file, tk)
		key, ok := iter.Key().(*ast.StringNode)
		if !ok {
			what := "a key that is no string; put it in quotes"
			if iter.Key().IsMergeKey() {
				what = "a merge key (<<), which is not supported; use an alias for the whole value"
			}
			r.wrong(pos, at, "has %s", what)
			continue
		}
		below := at + "/" + settings.Escape(key.Value)
		if first, twice := m.values[key.Value]; twice {
			r.wrong(pos, below, "is there twice; the first is in line %d", first.pos.Line)
			continue
		}
		item := r.value(iter.Value(), pos, below, depth+1)
		m.names = append(m.names, key.Value)
		m.values[key.Value] = item
		v.size += len(key.Value) + item.size
		v.height = max(v.height, item.height+1)
	}
}

func (r *reader) sequence(v *value, n *ast.SequenceNode, at string, depth int) {
	list := make([]*value, 0, len(n.Values))
	for i, item := range n.Values {
		pos := v.pos
		if item != nil {
			pos = place(r.file, firstToken(item))
		}
		below := at + "/" + strconv.Itoa(i)
		list = append(list, r.value(item, pos, below, depth+1))
		v.size += list[i].size
		v.height = max(v.height, list[i].height+1)
	}
	v.data = list
}

func (r *reader) anchor(n *ast.AnchorNode, pos Pos, at string, depth int) *value {
	before := len(r.problems)
	v := r.value(n.Value, pos, at, depth+1)
	name := n.Name.GetToken().Value
	// Only now, so that an alias inside cannot mean the whole.
	r.anchors[name] = v
	if len(r.problems) > before {
		r.anchors[name] = nil
	}
	return v
}

// alias shares the value of an anchor; places inside it are those of the anchor.
func (r *reader) alias(n *ast.AliasNode, pos Pos, at string, depth int) *value {
	name := n.Value.GetToken().Value
	v, known := r.anchors[name]
	switch {
	case !known:
		r.wrong(pos, at, "is an alias of %q, but no anchor before it has that name", name)
	case v == nil:
		r.wrong(pos, at, "is an alias of %q, which has a problem", name)
	case depth+v.height > maxDepth:
		r.wrong(pos, at, "is nested deeper than %d with its aliases", maxDepth)
	default:
		shared := *v
		shared.pos = pos
		return &shared
	}
	return &value{pos: pos, bad: true}
}
