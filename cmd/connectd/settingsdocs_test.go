package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// settingPaths are the paths of all settings but sinks' own, as they are said in the documentation: from the connector or
// the daemon on.
func settingPaths(t *testing.T) map[string]bool {
	t.Helper()
	type node struct {
		Properties           map[string]node
		AdditionalProperties json.RawMessage
	}
	var schema, connector node
	if err := json.Unmarshal([]byte(connectd(t, t.TempDir(), "schema").stdout), &schema); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(schema.Properties["connectors"].AdditionalProperties, &connector); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	var walk func(prefix string, n node)
	walk = func(prefix string, n node) {
		for name, below := range n.Properties {
			paths[prefix+name] = true
			walk(prefix+name+".", below)
		}
	}
	walk("", connector)
	walk("daemon.", schema.Properties["daemon"])
	if !paths["delivery.retry.max_attempts"] || !paths["daemon.http"] {
		t.Fatalf("the schema has no such settings: %v", paths)
	}
	return paths
}

// TestSettingsNamedInTheDocumentationExist: whoever reads of a setting finds it where its path says.
func TestSettingsNamedInTheDocumentationExist(t *testing.T) {
	paths := settingPaths(t)
	whole := map[string]string{} // by the end of a path
	for path := range paths {
		for rest := path; ; {
			_, after, more := strings.Cut(rest, ".")
			if !more {
				break
			}
			if rest = after; strings.Contains(rest, ".") {
				whole[rest] = path
			}
		}
	}
	pages := []string{"../../README.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		of := filepath.Base(filepath.Dir(page)) // pages of a source or a sink name its own settings from there on
		for _, m := range regexp.MustCompile("`([a-z_]+(?:\\.[a-z_]+)+)`").FindAllStringSubmatch(string(text), -1) {
			top, _, _ := strings.Cut(m[1], ".")
			_, isPart := paths[top]
			switch {
			case paths[m[1]] || of == "sources" && paths["source."+m[1]]:
			case (isPart || top == "daemon") && top != "sink":
				t.Errorf("%s: no setting is named %s", page, m[1])
			case whole[m[1]] != "" && of != "sinks":
				t.Errorf("%s: %s is %s", page, m[1], whole[m[1]])
			}
		}
	}
}
