package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/connectd/connectd/core/config"
)

// sourcePages are the plugins that have a page in docs/sources.
var sourcePages = []string{"sqlite", "postgres", "mysql"}

func sourcePage(t *testing.T, plugin string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("../../docs/sources", plugin+".md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// section is the text below a heading of the page.
func section(t *testing.T, plugin, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(sourcePage(t, plugin), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s: no section %s", plugin, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// statements are those of the block of SQL behind a mark on the page.
func statements(t *testing.T, plugin, mark string) []string {
	t.Helper()
	_, text, found := strings.Cut(sourcePage(t, plugin), "<!-- "+mark+" -->\n```sql\n")
	if !found {
		t.Fatalf("%s: no block %s", plugin, mark)
	}
	text, _, _ = strings.Cut(text, "```")
	return strings.Split(strings.TrimSuffix(text, ";\n"), ";\n")
}

// TestSourceSettingsAreDocumented: each setting that a kind of source takes is in its table, with its default, and no other is.
func TestSourceSettingsAreDocumented(t *testing.T) {
	sample := map[string]string{
		"dsn": "dsn: x", "path": "path: ./x.db", "columns": "columns: {key: k}", "header_columns": "header_columns: {a: b}", "notify": "notify: trigger", "max_transaction": "max_transaction: 1m",
		"table": "table: t", "poll.min": "poll: {min: 1s, max: 2s}", "poll.max": "poll: {max: 1s}",
		"tls.ca_file": "tls: {ca_file: x}", "tls.cert_file": "tls: {cert_file: x, key_file: y}", "tls.key_file": "tls: {cert_file: x, key_file: y}",
		"tls.server_name": "tls: {server_name: x}", "tls.min_version": "tls: {min_version: '1.3'}", "tls.insecure_skip_verify": "tls: {insecure_skip_verify: true}",
	}
	defaults := sourceDefaults(t)
	for _, plugin := range sourcePages {
		place := map[string]string{"sqlite": "path: ./shop.db", "postgres": "dsn: postgres://a:b@localhost/c", "mysql": "dsn: a:b@tcp(localhost)/c"}[plugin]
		documented := map[string]string{}
		for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\|([^|]*)\\|").FindAllStringSubmatch(section(t, plugin, "Settings"), -1) {
			documented[m[1]] = strings.Trim(m[2], " `")
		}
		for name, byDefault := range defaults {
			example, known := sample[name]
			if !known {
				t.Fatalf("setting %s is new to this test", name)
			}
			taken := strings.HasPrefix(place, name+":")
			if taken {
				byDefault = "required"
			} else {
				dir := t.TempDir()
				write(t, dir, "connectd.yaml", "connectors:\n  orders:\n    source:\n      plugin: "+plugin+"\n      "+place+"\n      "+example+"\n    sink: {plugin: file, path: ./out}\n")
				_, err := config.Load([]string{filepath.Join(dir, "connectd.yaml")}, os.LookupEnv)
				taken = err == nil
			}
			if name == "max_transaction" {
				byDefault = "1m" // the source's own
			}
			is, there := documented[name]
			switch {
			case taken != there:
				t.Errorf("%s: setting %s is taken: %v, documented: %v", plugin, name, taken, there)
			case taken && is != byDefault:
				t.Errorf("%s: default of %s is %q, documented %q", plugin, name, byDefault, is)
			}
			delete(documented, name)
		}
		for name := range documented {
			t.Errorf("%s: %s is documented and does not exist", plugin, name)
		}
	}
}

// sourceDefaults lists the settings of a source but its plugin, with their defaults.
func sourceDefaults(t *testing.T) map[string]string {
	t.Helper()
	type node struct {
		Default    any
		Properties map[string]node
	}
	var schema struct {
		Properties struct {
			Connectors struct {
				AdditionalProperties struct {
					Properties struct{ Source node }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(connectd(t, t.TempDir(), "schema").stdout), &schema); err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	var walk func(prefix string, n node)
	walk = func(prefix string, n node) {
		for name, p := range n.Properties {
			switch {
			case p.Properties != nil:
				walk(prefix+name+".", p)
			case p.Default == nil:
				list[prefix+name] = ""
			default:
				list[prefix+name] = fmt.Sprint(p.Default)
			}
		}
	}
	walk("", schema.Properties.Connectors.AdditionalProperties.Properties.Source)
	delete(list, "plugin")
	if len(list) == 0 {
		t.Fatal("the schema has no settings of a source")
	}
	return list
}

// TestDocumentedSourceErrorsExist: each text in a page's table of errors is in the code that gives it.
func TestDocumentedSourceErrorsExist(t *testing.T) {
	foreign := []string{"permission denied", "read only connection", "command denied"} // the servers' and the driver's
	for _, plugin := range sourcePages {
		files, err := filepath.Glob("../../sources/" + plugin + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, more := range []string{"../../core/*.go", "../../core/layout/*.go"} {
			found, err := filepath.Glob(more)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, found...)
		}
		var code strings.Builder
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(name, "_test.go") {
				code.Write(text)
			}
		}
		n := 0
		for line := range strings.Lines(section(t, plugin, "Errors and what to do")) {
			first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
			if !strings.HasPrefix(line, "| `") {
				continue
			}
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
				n++
				if !slices.Contains(foreign, m[1]) && !strings.Contains(code.String(), m[1]) {
					t.Errorf("%s: nothing says %q", plugin, m[1])
				}
			}
		}
		if n == 0 {
			t.Errorf("%s: no errors", plugin)
		}
	}
}

// TestDocumentedSQLite runs the page's SQL beside a daemon.
func TestDocumentedSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := openSQL(t, "sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(5000)")
	useDocumented(t, documentedUse{
		plugin: "sqlite", dir: dir, source: "plugin: sqlite, path: ./shop.db", keep: true,
		init:  map[string]string{},
		run:   map[string]string{},
		admin: func(sql ...string) { executeOn(t, db, sql...) },
		shop:  func(sql ...string) { executeOn(t, db, sql...) },
	})
}
