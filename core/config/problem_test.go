package config_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/connectd/connectd/core/config"
)

// in puts lines into the connector of a file that is right otherwise; they begin in line 6.
func in(lines string) string {
	return `connectors:
  shop:
    source: {plugin: sqlite, path: shop.db}
    sink: {plugin: file, path: "-"}
    # what is being tried:
` + lines + "\n"
}

func TestOneProblem(t *testing.T) {
	const duration = `must be a duration with a unit, such as "500ms", "30s", "5m", "24h" or "7d"`
	for _, c := range []struct{ yaml, want string }{
		// The reader's part.
		{"a: [1, 2\n", `c.yaml:1:4: the YAML cannot be read: sequence end token ']' not found`},
		{"a: [x, ${N}]\n", `c.yaml:1:9: the YAML cannot be read: ',' or ']' must be specified; a value with ${...} may need quotes`},
		{"connectors:\n\tx: 1\n", `c.yaml:2:1: the YAML cannot be read: found character '	' that cannot start any token`},
		{"a: 1\n\nb: \xff\n", `c.yaml:3:1: the file is not valid UTF-8`},
		{least + "---\na: 1\n", `c.yaml:5:1: a second YAML document begins here; put it into a file of its own`},
		{"%YAML 1.1\n---\na: 1\n", `c.yaml:1:1: YAML directives are not supported; remove the line`},
		{"", `c.yaml: no connectors are configured`},
		{"connectors: {}", `c.yaml: no connectors are configured`},
		{"- connectors\n", `c.yaml:1:1: the file must be a map with the keys daemon and connectors`},
		{least + "conectors: {}\n", `c.yaml:5:1: conectors is not a known key; did you mean "connectors"?`},
		{"connectors:\n", `c.yaml:1:1: connectors must be a map of names to connectors`},
		{least + "  shop:\n    x: 1\n", `c.yaml:5:3: connector "shop": it is there twice; the first is in line 2`},
		{least + "  {a: b}: c\n", `c.yaml:5:9: the YAML cannot be read: found an invalid key for this map`},
		{least + "  404: {}\n", `c.yaml:5:3: connectors has a key that is no string; put it in quotes`},
		{in("    delivery: {<<: {lease: 5s}}"), `c.yaml:6:16: connector "shop": delivery has a merge key (<<), which is not supported; use an alias for the whole value`},
		{in("    delivery: {lease: !!str 5s}"), `c.yaml:6:16: connector "shop": delivery.lease has the tag !!str; tags are not supported, put text in quotes instead`},
		{in("    delivery: *none"), `c.yaml:6:5: connector "shop": delivery is an alias of "none", but no anchor before it has that name`},
		{in("    delivery: &d {lease: *d}"), `c.yaml:6:19: connector "shop": delivery.lease is an alias of "d", but no anchor before it has that name`},
		// Lines that end in CR LF are counted once.
		{strings.ReplaceAll(in("\n\n    retires: 5"), "\n", "\r\n"), `c.yaml:8:5: connector "shop": retires is not a known setting; valid are audit, delivery, process, retention, sink, source`},
		{"\ufeffx: 1\n" + least, `c.yaml:1:1: x is not a known key; valid are connectors, daemon`},
		// Variables.
		{in("    process: {env: [\"${NO}\"]}"), `c.yaml:6:21: connector "shop": process.env.0 needs the variable NO, which is not set; set it, or write ${NO:-default}`},
		{in("    process: {sha256: a$b}"), `c.yaml:6:15: connector "shop": process.sha256 has a $ that begins no ${NAME}; write $$ for a dollar`},
		{in("    process: {sha256: \"${NAME-x}\"}"), `c.yaml:6:15: connector "shop": process.sha256 has a ${...} that is none of ${NAME}, ${NAME:-default} and ${file:/path}`},
		{in("    process: {sha256: \"${NAME\"}"), `c.yaml:6:15: connector "shop": process.sha256 has a $ that begins no ${NAME}; write $$ for a dollar`},
		{in("    process: {sha256: \"${file:/no/such}\"}"), `c.yaml:6:15: connector "shop": process.sha256 needs a file: stat /no/such: no such file or directory`},
		{strings.Replace(in(""), "path: shop.db", "path: shop.db, tls: {}", 1), `c.yaml:3:45: connector "shop": source.tls is not for sqlite, which reads a file`},
		{strings.Replace(in(""), "plugin: sqlite, path: shop.db", "plugin: postgres, dsn: x, tls: {ca_file: x}", 1),
			`c.yaml:3:40: connector "shop": source.tls is for mysql; postgres has it in source.dsn: sslmode, sslrootcert, sslcert and sslkey`},
		{strings.Replace(in(""), "plugin: sqlite, path: shop.db", "plugin: mysql, dsn: x, tls: {cert_file: x}", 1),
			`c.yaml:3:37: connector "shop": source.tls.key_file is required with source.tls.cert_file`},
		// Names, types and ranges.
		{in("    retry: {}"), `c.yaml:6:5: connector "shop": retry is not a known setting; valid are audit, delivery, process, retention, sink, source`},
		{in("    delivery: {retires: 5}"), `c.yaml:6:16: connector "shop": delivery.retires is not a known setting; did you mean "retry"?`},
		{in("    delivery: {lease: 600}"), `c.yaml:6:16: connector "shop": delivery.lease ` + duration},
		{in("    delivery: {drain: 0}"), `c.yaml:6:16: connector "shop": delivery.drain ` + duration},
		{in("    delivery: {timeout: 5seconds}"), `c.yaml:6:16: connector "shop": delivery.timeout ` + duration},
		{in("    delivery: {lease: 10ms}"), `c.yaml:6:16: connector "shop": delivery.lease must be 1s to 1h`},
		{in("    delivery: {in_flight: 0}"), `c.yaml:6:16: connector "shop": delivery.in_flight must be 1 to 1024`},
		{in("    delivery: {in_flight: many}"), `c.yaml:6:16: connector "shop": delivery.in_flight must be a whole number`},
		{in("    delivery: {batch: {max_bytes: 1GiB}}"), `c.yaml:6:24: connector "shop": delivery.batch.max_bytes must be 1 to 64MiB`},
		{in("    delivery: {ordering: yes}"), `c.yaml:6:16: connector "shop": delivery.ordering must be one of key, none, commit`},
		{in("    delivery:"), `c.yaml:6:5: connector "shop": delivery has no value; it must be a map of settings, or not be there at all`},
		{in("    delivery: {retry: {initial: 2m, max: 1m}}"), `c.yaml:6:24: connector "shop": delivery.retry.initial must not be above delivery.retry.max, 1m0s`},
		{in("    audit:\n      events: {table: e, key: id}"), `c.yaml:7:7: connector "shop": audit.events must have command or join, which say what an event's command is`},
		{in("    audit:\n      events: {table: e, key: id, command: id, join: run_id}"), `c.yaml:7:48: connector "shop": audit.events.join must not be given beside command`},
		{in("    audit: {every: 1s}"), `c.yaml:6:13: connector "shop": audit.every must be at least 1m`},
		{in("    retention: {dead: forever}"), `c.yaml:6:17: connector "shop": retention.dead must be "keep", or a duration with a unit, such as "24h" or "7d"`},
		{in("    delivery: {on_dead: block}\n    retention: {dead: 30d}"), `c.yaml:7:17: connector "shop": retention.dead must be keep with delivery.on_dead: block, where later rows of a dead row's key wait for a person`},
		{in("    process: {sha256: abc}"), `c.yaml:6:15: connector "shop": process.sha256 must be a SHA-256 digest, 64 hexadecimal digits`},
		{in("    process: {env: [A, B=1]}"), `c.yaml:6:24: connector "shop": process.env.1 must be the name of an environment variable; its value cannot be set here`},
		{
			"connectors:\n  a/b: {source: {plugin: sqlite, path: x}, sink: {plugin: file}}\n",
			`c.yaml:2:3: connector "a/b": it needs a name of 1 to 64 letters, digits, dots, dashes and underscores that begins with a letter or digit`,
		},
		{"connectors:\n  a:\n    source: {plugin: sqlite, path: x}\n", `c.yaml:2:3: connector "a": sink is required`},
		{"connectors:\n  a: {sink: {plugin: file}}\n", `c.yaml:2:3: connector "a": source is required`},
		{"connectors:\n  a:\n", `c.yaml:2:3: connector "a": it has no value; it must be a map of settings, or not be there at all`},
		// Source and sink.
		{source("plugin: oracle, dsn: x"), `c.yaml:3:14: connector "a": source.plugin must be one of postgres, mysql, sqlite`},
		{source("plugin: postgres"), `c.yaml:3:5: connector "a": source.dsn is required for postgres`},
		{source("plugin: mysql, dsn: x, path: y"), `c.yaml:3:37: connector "a": source.path is for sqlite; mysql needs source.dsn`},
		{source("plugin: sqlite"), `c.yaml:3:5: connector "a": source.path is required for sqlite`},
		{source("plugin: sqlite, path: x, dsn: y"), `c.yaml:3:39: connector "a": source.dsn is not for sqlite, which needs source.path`},
		{source("plugin: sqlite, path: x, table: \"a\\nb\""), `c.yaml:3:39: connector "a": source.table must be the name of a table, without a full stop`},
		{source("plugin: sqlite, path: x, table: a.b"), `c.yaml:3:39: connector "a": source.table must be the name of a table, without a full stop`},
		{source("plugin: mysql, dsn: x, table: a.b.c"), "c.yaml:3:37: connector \"a\": source.table must be the name of a table, or schema.table; a name that has a full stop is put in ``"},
		{source("plugin: postgres, dsn: x, table: '\"a'"), `c.yaml:3:40: connector "a": source.table must be the name of a table, or schema.table; a name that has a full stop is put in ""`},
		{source("plugin: postgres, dsn: x, table: '\"a\"b'"), `c.yaml:3:40: connector "a": source.table must be the name of a table, or schema.table; a name that has a full stop is put in ""`},
		{source("plugin: sqlite, path: x, columns: {partition: p}"), `c.yaml:3:49: connector "a": source.columns.partition is not for sqlite, whose tables have one partition`},
		{source("plugin: sqlite, path: x, columns: {key: a, type: a}"), `c.yaml:3:57: connector "a": source.columns.type is the same column as source.columns.key`},
		{source("plugin: sqlite, path: x, columns: {kye: a}"), `c.yaml:3:49: connector "a": source.columns.kye is not a known column; did you mean "key"?`},
		{source("plugin: sqlite, path: x, columns: {payload: null}"), `c.yaml:3:49: connector "a": source.columns.payload must be the name of a column; this one cannot be absent`},
		{source("plugin: sqlite, path: x, columns: {id: \"a\\tb\"}"), `c.yaml:3:49: connector "a": source.columns.id must be the name of a column, as the table has it`},
		{source("plugin: sqlite, path: x, poll: {min: 2s, max: 1s}"), `c.yaml:3:46: connector "a": source.poll.min must not be above source.poll.max, 1s`},
		{sink("{path: x}"), `c.yaml:4:5: connector "a": sink.plugin is required`},
		{sink("{plugin: ../x}"), `c.yaml:4:12: connector "a": sink.plugin must be a name of 1 to 64 lower-case letters, digits, dashes and underscores`},
		{sink("file"), `c.yaml:4:5: connector "a": sink must be a map of settings`},
		{sink("{plugin: file, password: \"${NO}\"}"), `c.yaml:4:26: connector "a": sink.password needs the variable NO, which is not set; set it, or write ${NO:-default}`},
		// The daemon.
		{least + "daemon: {htpp: x}\n", `c.yaml:5:10: daemon.htpp is not a known setting; did you mean "http"?`},
		{least + "daemon: {http: 0.0.0.0:8083}\n", `c.yaml:5:10: daemon.http is not a loopback address; to listen there, set daemon.token`},
		{least + "daemon: {http: ':8083'}\n", `c.yaml:5:10: daemon.http is not a loopback address; to listen there, set daemon.token`},
		{least + "daemon: {http: localhost}\n", `c.yaml:5:10: daemon.http must be host:port, such as 127.0.0.1:8083, or off`},
		{least + "daemon: {http: 'localhost:99999'}\n", `c.yaml:5:10: daemon.http must be host:port, such as 127.0.0.1:8083, or off`},
		{least + "daemon: {token: \"${EMPTY}\"}\n", `c.yaml:5:10: daemon.token must have a length of at least 1`},
	} {
		if got := problems(t, c.yaml, env("EMPTY", "")); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.yaml, strings.Join(got, "\n     "), c.want)
		}
	}
}

func source(settings string) string {
	return "connectors:\n  a:\n    source: {" + settings + "}\n    sink: {plugin: file}\n"
}

func sink(settings string) string {
	return "connectors:\n  a:\n    source: {plugin: sqlite, path: x}\n    sink: " + settings + "\n"
}

func TestNoProblem(t *testing.T) {
	for _, yaml := range []string{
		in(""),
		in("    delivery: {in_flight: \"${EIGHT}\", batch: {max_bytes: 4096}, drain: 0s}"),
		in("    retention: {published: keep, dead: 90d, require_receipt: \"true\"}"),
		in("    delivery: &d {lease: 5s}\n  other:\n    source: {plugin: sqlite, path: other.db}\n    sink: {plugin: file}\n    delivery: *d"),
		least + "daemon: {http: off}\n",
		least + "daemon: {http: '[::1]:0'}\n",
		least + "daemon: {http: '0.0.0.0:8083', token: t}\n",
		"---\n" + least + "...\n",
		source("plugin: mysql, dsn: 'u:p@tcp(db)/x', table: my-outbox, columns: {key: null, headers: null, id: n, order: n}"),
		source("plugin: sqlite, path: x, header_columns: {tenant: tenant_id}"),
	} {
		if got := problems(t, yaml, env("EIGHT", "8")); got != nil {
			t.Errorf("%s\n%s", yaml, strings.Join(got, "\n"))
		}
	}
}

func TestReceiptsTokenIsASecondOne(t *testing.T) {
	for yaml, want := range map[string]string{
		"daemon: {receipts_token: b}": "needs daemon.token", "daemon: {token: b, receipts_token: b}": "is the same", "daemon: {token: a, receipts_token: b}": "", "daemon: {token: a}": "",
	} {
		got := strings.Join(problems(t, least+yaml+"\n", env()), "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", yaml, got, want)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	got := problems(t, `daemon: {http: nowhere, plugin_dir: ""}
connectors:
  a:
    source: {plugin: postgres, tabel: x, poll: {min: 5, max: 1ms}}
    sink: {plugin: kafka}
    delivery: {lease: 1, batch: {max_records: -1}}
  b:
    source: {plugin: sqlite, path: "${NO}", columns: {id: null}}
    sink: 5
`, env())
	var places []string
	for _, line := range got {
		places = append(places, strings.SplitN(line, " ", 2)[0])
	}
	want := []string{
		"c.yaml:1:10:", "c.yaml:1:25:",
		"c.yaml:4:5:", "c.yaml:4:32:", "c.yaml:4:49:", "c.yaml:6:16:", "c.yaml:6:34:",
		"c.yaml:8:30:", "c.yaml:8:55:", "c.yaml:9:5:",
	}
	if !slices.Equal(places, want) {
		t.Errorf("got\n%s\nwant places %s", strings.Join(got, "\n"), want)
	}
}

// A value may be a secret wherever it stands, above all where it does not belong.
func TestNoProblemShowsAValue(t *testing.T) {
	const secret = "hunter2"
	lookup := env("SECRET", secret+": [\n{", "SET", secret)
	for _, template := range []string{
		source("plugin: %s, dsn: x"), source("plugin: postgres, dsn: x, table: '\"a %s'"), source("plugin: postgres, dsn: x, columns: {id: \"\\t; %s\"}"),
		source("plugin: sqlite, path: x, dsn: %s"), sink("{plugin: '.%s'}"), sink("%s"), in("    delivery: {lease: %s}"),
		in("    delivery: {in_flight: %s}"), in("    delivery: {ordering: %s}"), in("    retention: {dead: %s}"),
		in("    process: {sha256: %s}"), in("    process: {env: ['=%s']}"), in("    process: %s"),
		least + "daemon: {http: %s}\n", least + "daemon: {http: '%s:0'}\n",
	} {
		for _, value := range []string{secret, "${SECRET}", "${SET}"} {
			yaml := fmt.Sprintf(template, value)
			if strings.Contains(template, ": %s") && strings.HasPrefix(value, "$") {
				yaml = fmt.Sprintf(template, `"`+value+`"`)
			}
			got := strings.Join(problems(t, yaml, lookup), "\n")
			if got == "" || strings.Contains(got, secret) {
				t.Errorf("%s\ngot %s", yaml, got)
			}
		}
	}
	cfg := load(t, source("plugin: postgres, dsn: 'postgres://u:"+secret+"@db/x'"), env())
	if got := fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg); strings.Contains(got, secret) {
		t.Errorf("printed, the Config shows the DSN: %s", got)
	}
}

func TestABadConnectorLeavesTheOthers(t *testing.T) {
	write(t, "a.yaml", least, "b.yaml", "connectors:\n  broken: [\n",
		"c.yaml", "connectors:\n  typo:\n    source: {plugin: sqlite, path: c.db}\n    sink: {plugin: file}\n    delivry: {}\n"+
			"  good:\n    source: {plugin: sqlite, path: d.db}\n    sink: {plugin: file}\n")
	cfg, err := config.Load([]string{"."}, env())
	if cfg == nil || len(cfg.Connectors) != 2 || cfg.Connectors[0].Name != "shop" || cfg.Connectors[1].Name != "good" {
		t.Fatalf("got %+v", cfg)
	}
	var all config.Problems
	if !errors.As(err, &all) || len(all) != 2 || all[0].Connector != "" || all[0].Pos.File != "b.yaml" || all[1].Connector != "typo" {
		t.Errorf("got %v", err)
	}
}

// A value that is not known must not run a connector that has it from elsewhere.
func TestAnAliasSharesTheProblem(t *testing.T) {
	write(t, "c.yaml", in("    delivery: &d {lease: \"${NO}\"}\n  other:\n    source: {plugin: sqlite, path: o}\n    sink: {plugin: file}\n    delivery: *d"))
	cfg, err := config.Load([]string{"c.yaml"}, env())
	want := `c.yaml:6:19: connector "shop": delivery.lease needs the variable NO, which is not set; set it, or write ${NO:-default}
c.yaml:10:5: connector "other": delivery is an alias of "d", which has a problem`
	if err == nil || err.Error() != want || len(cfg.Connectors) > 0 {
		t.Errorf("got %+v and\n%v", cfg, err)
	}
}

// Without its daemon section the daemon would listen where nobody wanted it to, or without its token.
func TestNothingRunsWithoutTheDaemonSection(t *testing.T) {
	for name, files := range map[string][]string{
		"wrong":             {"a.yaml", least, "d.yaml", "daemon: {http: 1}\n"},
		"unset token":       {"a.yaml", least, "d.yaml", "daemon: {token: \"${NO}\"}\n"},
		"cannot be read":    {"a.yaml", least, "d.yaml", "daemon: {http: [\n"},
		"misspelt":          {"a.yaml", least, "d.yaml", "deamon: {http: off}\n"},
		"twice":             {"a.yaml", least, "d.yaml", "daemon: {http: off}\n", "e.yaml", "daemon: {}\n"},
		"twice in one file": {"a.yaml", least + "daemon: {http: off}\ndaemon: {}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, files...)
			if cfg, err := config.Load([]string{"."}, env()); cfg != nil || err == nil {
				t.Errorf("got %+v, %v", cfg, err)
			}
		})
	}
	write(t, "a.yaml", least)
	if cfg, err := config.Load([]string{"a.yaml", "no.yaml"}, env()); cfg != nil || err == nil || err.Error() != "no.yaml: no such file or directory" {
		t.Errorf("a missing file: %+v, %v", cfg, err)
	}
}
