package config_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// sinkSettings loads one connector whose sink has the settings, lines of YAML.
func sinkSettings(t *testing.T, lines string, lookup func(string) (string, bool)) map[string]any {
	t.Helper()
	cfg := load(t, "connectors:\n  a:\n    source: {plugin: sqlite, path: x}\n    sink:\n      plugin: file\n"+lines, lookup)
	var got map[string]any
	if err := json.Unmarshal(cfg.Connectors[0].Sink.Settings, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSubstitution(t *testing.T) {
	lookup := env("A", "one", "EMPTY", "", "DOLLAR", "foo$bar ${A} $$", "JSON", `{"x": [1]}`, "COLON", "a: b\nevil: true\n# no")
	for text, want := range map[string]string{
		`${A}`: "one", `"<${A}-${A}>"`: "<one-one>", `'${A}'`: "one", `${EMPTY}`: "", `${EMPTY:-d}`: "d", `${NO:-}`: "",
		`${NO:-a b}`: "a b", `"${NO:-a: b}"`: "a: b", `${NO:-$A}`: "$A", `$$`: "$", `a$$b$${A}`: "a$b${A}", `$$$$`: "$$", `$$${A}`: "$one",
		// What a variable contains is text: no YAML, no variable, no escape.
		`${DOLLAR}`: "foo$bar ${A} $$", `${JSON}`: `{"x": [1]}`, `${COLON}`: "a: b\nevil: true\n# no",
		"|-\n        ${A}\n        b": "one\nb",
	} {
		got := sinkSettings(t, "      v: "+text+"\n", lookup)
		if got["v"] != want || len(got) != 1 {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	if got := sinkSettings(t, "      ${A}: x\n", lookup); got["${A}"] != "x" {
		t.Errorf("keys are substituted: %v", got)
	}
}

func TestSubstitutedValuesAreNeverTyped(t *testing.T) {
	got := sinkSettings(t, "      a: ${A}\n      b: ${B}\n      c: ${C}\n      d: ${NO:-5}\n", env("A", "0123", "B", "true", "C", "null"))
	for name, want := range map[string]string{"a": "0123", "b": "true", "c": "null", "d": "5"} {
		if got[name] != want {
			t.Errorf("%s is %#v, want the string %q", name, got[name], want)
		}
	}
}

func TestSubstitutionFromAFile(t *testing.T) {
	dir := write(t, "secret", "pass$word: ${A}\n", "crlf", "x\r\n", "lines", "a\nb\n\n", "big", strings.Repeat("x", 64<<10+1), "binary", "\xff")
	file := func(name string) string { return `"${file:` + dir + "/" + name + `}"` }
	source := "connectors:\n  a:\n    source: {plugin: sqlite, path: x}\n    sink: {plugin: file, v: "
	for name, want := range map[string]string{"secret": "pass$word: ${A}", "crlf": "x", "lines": "a\nb\n"} {
		if got := sinkSettings(t, "      v: "+file(name)+"\n", env()); got["v"] != want {
			t.Errorf("%s: got %q, want %q", name, got["v"], want)
		}
	}
	for name, says := range map[string]string{
		"big": "is larger than 65536 bytes", "binary": "is not valid UTF-8", "": "is not a regular file", "no": "no such file",
	} {
		got := problems(t, source+file(name)+"}\n", env())
		if len(got) != 1 || !strings.Contains(got[0], says) {
			t.Errorf("%q: got %q", name, got)
		}
	}
}
