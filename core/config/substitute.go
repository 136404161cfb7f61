package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxSecretFile bounds what ${file:...} reads, in bytes.
const maxSecretFile = 64 << 10

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// substitute replaces the variables in text and says whether there were any. What they contain is not looked at again.
// Its errors name variables and files, never values.
func substitute(text string, lookup func(string) (string, bool)) (result string, substituted bool, err error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String(), substituted, nil
		}
		if rest, escaped := strings.CutPrefix(after, "$"); escaped {
			b.WriteByte('$')
			text = rest
			continue
		}
		body, rest, closed := strings.Cut(after, "}")
		if !strings.HasPrefix(body, "{") || !closed {
			return "", false, errors.New("has a $ that begins no ${NAME}; write $$ for a dollar")
		}
		v, err := expand(body[1:], lookup)
		if err != nil {
			return "", false, err
		}
		b.WriteString(v)
		text, substituted = rest, true
	}
}

// expand returns what stands for the text between ${ and }.
func expand(body string, lookup func(string) (string, bool)) (string, error) {
	if path, ok := strings.CutPrefix(body, "file:"); ok {
		return readSecret(path)
	}
	name, fallback, hasFallback := strings.Cut(body, ":-")
	if !variableName.MatchString(name) {
		return "", errors.New("has a ${...} that is none of ${NAME}, ${NAME:-default} and ${file:/path}")
	}
	v, set := lookup(name)
	switch {
	case hasFallback && v == "":
		return fallback, nil
	case !set:
		return "", fmt.Errorf("needs the variable %s, which is not set; set it, or write ${%s:-default}", name, name)
	case !utf8.ValidString(v):
		return "", fmt.Errorf("needs the variable %s, whose value is not valid UTF-8", name)
	}
	return v, nil
}

// readSecret returns a file's text without one trailing newline.
func readSecret(path string) (string, error) {
	data, err := readFile(path, maxSecretFile)
	if err != nil {
		return "", fmt.Errorf("needs a file: %w", err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if !utf8.ValidString(text) {
		return "", fmt.Errorf("needs the file %s, which is not valid UTF-8", path)
	}
	return text, nil
}

// readFile reads a regular file of at most limit bytes; anything else might never end.
func readFile(path string, limit int64) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}
