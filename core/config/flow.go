package config

import (
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// joinScalars mends what the lexer takes apart: in a list within a mapping in braces it sees the colon of host:9092 as that
// of a mapping. By the specification a plain scalar goes on after a colon that no space follows:
// https://yaml.org/spec/1.2.2/#733-plain-style
func joinScalars(all token.Tokens) token.Tokens {
	var open []token.Type // brackets
	joined := all[:0:0]
	for i := 0; i < len(all); i++ {
		tk := all[i]
		switch tk.Type {
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, tk.Type)
		case token.MappingEndType, token.SequenceEndType:
			open = open[:max(len(open)-1, 0)]
		}
		inList := len(open) > 0 && open[len(open)-1] == token.SequenceStartType
		if inList && i+2 < len(all) && all[i+1].Type == token.MappingValueType && isPlain(tk) && isPlain(all[i+2]) &&
			adjoin(tk, all[i+1]) && adjoin(all[i+1], all[i+2]) {
			tk = token.New(tk.Value+":"+all[i+2].Value, tk.Origin+":"+all[i+2].Origin, tk.Position)
			i += 2
		}
		if n := len(joined); n > 0 {
			joined[n-1].Next, tk.Prev = tk, joined[n-1]
		}
		joined = append(joined, tk)
	}
	return joined
}

// isPlain says that a token is a scalar without quotes.
func isPlain(tk *token.Token) bool {
	return tk.Indicator == token.NotIndicator && tk.Type != token.CommentType && tk.Type != token.InvalidType
}

// adjoin says that nothing is between two tokens.
func adjoin(a, b *token.Token) bool {
	return a.Position.Line == b.Position.Line && a.Position.Column+utf8.RuneCountInString(a.Value) == b.Position.Column
}
