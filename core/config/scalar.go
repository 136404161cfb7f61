package config

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strings"
)

// The plain scalars of YAML 1.2's core schema that are not strings. What YAML 1.1 and some parsers read into a text
// (yes, 1_000, 017 as octal, dates) is a string here. So is a number with leading zeros, which JSON cannot hold.
var (
	decimal = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)
	based   = regexp.MustCompile(`^0(o[0-7]+|x[0-9a-fA-F]+)$`)
	float   = regexp.MustCompile(`^[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

// longestNumber bounds numbers so that converting them stays cheap.
const longestNumber = 100

// resolve gives a plain scalar its type. Numbers keep their digits.
func resolve(text string) any {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return nil
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	}
	if len(text) > longestNumber || !strings.ContainsAny(text, "0123456789") {
		return text
	}
	switch {
	case decimal.MatchString(text):
		return json.Number(strings.TrimPrefix(text, "+"))
	case based.MatchString(text):
		n, ok := new(big.Int).SetString(text, 0)
		if !ok {
			return text
		}
		return json.Number(n.String())
	case float.MatchString(text):
		return json.Number(jsonFloat(strings.TrimPrefix(text, "+")))
	}
	return text
}

// jsonFloat adds the zeros that YAML lets one leave out: ".5" and "1." and "-.5e3".
func jsonFloat(text string) string {
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	if strings.HasPrefix(text, ".") {
		text = "0" + text
	}
	whole, rest, found := strings.Cut(text, ".")
	if found && (rest == "" || rest[0] == 'e' || rest[0] == 'E') {
		rest = "0" + rest
	}
	if found {
		text = whole + "." + rest
	}
	return sign + text
}
