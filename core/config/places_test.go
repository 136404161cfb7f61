package config_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Each key of the sink is called kN and stands where the text says, whatever stands before it.
func TestPlacesAfterAllKindsOfValues(t *testing.T) {
	text := `connectors:
  a:
    source: {plugin: sqlite, path: x}
    sink:
      plugin: file
      k1: plain   # comment
      # another

      k2: |
        literal

        text
      k3: >-
        folded

        text

      k4: "double
        quoted

        text"
      k5: 'single
        quoted'
      k6: plain
        in two lines
      k7:
        # comment
        k8: |+
          kept

        k9: x
      k10:
      - k11: 1
        k12: 2

      # comment
      -   k13: "\u00e9 \\ \"x\" \n"
      - - k14: x
      k15: {k16: [1,
         2], k17: "é", k18: {

         k19: x}}
      k20:
      k21: ~
      k22: &anchor {k23: 1}
      k24: *anchor
      "k25": é漢字
      'k26': x
      k27: ""
      k28: |2
          indented
      k29: https://example.com/#no-comment
      k30: x
`
	pointers := map[string]string{
		"k8": "/k7/k8", "k9": "/k7/k9", "k11": "/k10/0/k11", "k12": "/k10/0/k12", "k13": "/k10/1/k13", "k14": "/k10/2/0/k14",
		"k16": "/k15/k16", "k17": "/k15/k17", "k18": "/k15/k18", "k19": "/k15/k18/k19", "k23": "/k22/k23",
	}
	for name, text := range map[string]string{"LF": text, "CR LF": strings.ReplaceAll(text, "\n", "\r\n")} {
		cfg := load(t, text, env())
		for i, line := range strings.Split(text, "\n") {
			for _, at := range regexp.MustCompile(`["']?\bk\d+\b["']?:`).FindAllStringIndex(line, -1) {
				key := strings.Trim(line[at[0]:at[1]], `"':`)
				pointer := pointers[key]
				if pointer == "" {
					pointer = "/" + key
				}
				column := len([]rune(line[:at[0]])) + 1
				if got, want := cfg.Locate("a", pointer), fmt.Sprintf("c.yaml:%d:%d", i+1, column); got != want {
					t.Errorf("%s: %s is at %s, want %s", name, key, got, want)
				}
			}
		}
		settings := string(cfg.Connectors[0].Sink.Settings)
		for _, want := range []string{
			`"k2":"literal\n\ntext\n"`, `"k3":"folded\ntext"`, `"k4":"double quoted\ntext"`, `"k5":"single quoted"`,
			`"k6":"plain in two lines"`, `"k8":"kept\n\n"`, `"k13":"é \\ \"x\" \n"`, `"k28":"  indented\n"`, `"k24":{"k23":1}`,
			`"k29":"https://example.com/#no-comment"`, `"k25":"é漢字"`, `"k27":""`, `"k20":null`,
		} {
			if !strings.Contains(settings, want) {
				t.Errorf("%s: no %s in %s", name, want, settings)
			}
		}
	}
}
