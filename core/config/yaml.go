package config

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of one file.
const (
	maxFile     = 1 << 20 // bytes
	maxDepth    = 64
	maxExpanded = 4 << 20 // bytes of a value after aliases are expanded and variables substituted
)

// parseYAML returns the root node of a file's only document; nil when the file is empty.
func parseYAML(file string, data []byte) (root ast.Node, problem *Problem) {
	at := Pos{File: file, Line: 1, Column: 1}
	// A parser's panic must not end a daemon that reloads.
	defer func() {
		if r := recover(); r != nil {
			root, problem = nil, &Problem{Pos: Pos{File: file}, Message: "the YAML cannot be read"}
		}
	}()
	if !utf8.Valid(data) {
		valid := bytes.ToValidUTF8(data, nil)
		same := 0
		for same < len(valid) && valid[same] == data[same] {
			same++
		}
		at.Line += bytes.Count(data[:same], []byte("\n"))
		return nil, &Problem{Pos: at, Message: "the file is not valid UTF-8"}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	// The lexer counts lines that end in CR LF twice.
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	all := joinScalars(lexer.Tokenize(string(data)))
	if tk := tooDeep(all); tk != nil {
		return nil, &Problem{Pos: place(file, tk), Message: fmt.Sprintf("the YAML is nested deeper than %d", maxDepth)}
	}
	// Keys that are there twice are found while reading, so that one does not hide other problems.
	tree, err := parser.Parse(all, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) && syntax.Token != nil {
			at = place(file, syntax.Token)
			message := "the YAML cannot be read: " + syntax.Message
			if lines := bytes.Split(data, []byte("\n")); at.Line <= len(lines) && bytes.Contains(lines[at.Line-1], []byte("${")) {
				message += "; a value with ${...} may need quotes"
			}
			return nil, &Problem{Pos: at, Message: message}
		}
		return nil, &Problem{Pos: at, Message: "the YAML cannot be read"}
	}
	return onlyDocument(file, tree)
}

func onlyDocument(file string, tree *ast.File) (ast.Node, *Problem) {
	for i, doc := range tree.Docs {
		if directive, ok := doc.Body.(*ast.DirectiveNode); ok {
			return nil, &Problem{Pos: place(file, directive.GetToken()), Message: "YAML directives are not supported; remove the line"}
		}
		if i == 0 {
			continue
		}
		tk := doc.Start
		if tk == nil && doc.Body != nil {
			tk = firstToken(doc.Body)
		}
		if tk == nil {
			tk = &token.Token{Position: &token.Position{Line: 1, Column: 1}}
		}
		return nil, &Problem{Pos: place(file, tk), Message: "a second YAML document begins here; put it into a file of its own"}
	}
	if len(tree.Docs) == 0 || tree.Docs[0].Body == nil {
		return nil, nil
	}
	return tree.Docs[0].Body, nil
}

// tooDeep returns the token that exceeds the depth, or nil. The parser itself is unbounded and quadratic in depth; it
// bears what indentation alone can nest in a file of this size.
func tooDeep(all token.Tokens) *token.Token {
	depth, run := 0, 0
	for _, tk := range all {
		if tk.Prev == nil || tk.Prev.Position.Line != tk.Position.Line {
			run = 0 // "- - - x" nests within a line
		}
		switch tk.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			run++
		}
		if depth > maxDepth || run > maxDepth {
			return tk
		}
	}
	return nil
}

func place(file string, tk *token.Token) Pos {
	// The lexer gives the text of a block scalar column 0.
	return Pos{File: file, Line: max(tk.Position.Line, 1), Column: max(tk.Position.Column, 1)}
}

// firstToken is where a node begins.
func firstToken(n ast.Node) *token.Token {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken()
	}
	return n.GetToken()
}
