package host

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
)

// logged is what one line of output becomes.
func logged(t *testing.T, line string) map[string]any {
	t.Helper()
	logs := &logBuffer{}
	(&output{log: logs.logger()}).line("stderr", []byte(line))
	var record map[string]any
	if err := json.Unmarshal([]byte(logs.String()), &record); err != nil {
		t.Fatalf("%v: %s", err, logs)
	}
	return record
}

func TestOutputBecomesLogRecords(t *testing.T) {
	for line, want := range map[string][2]string{
		`hello`:              {"INFO", "hello"},
		`[WARN] low on disk`: {"WARN", "[WARN] low on disk"},
		`{"time":"2026-01-02T03:04:05Z","level":"ERROR","msg":"no broker","n":3}`:              {"ERROR", "no broker"},
		`{"@level":"warn","@message":"no broker","@timestamp":"2026-01-02T03:04:05Z","n":"3"}`: {"WARN", "no broker"},
		`{"level":"info"`:       {"INFO", `{"level":"info"`},
		`{"other":"json"}`:      {"INFO", `{"other":"json"}`},
		"red \x1b[31m and \x00": {"INFO", `red \x1b[31m and \x00`},
	} {
		r := logged(t, line)
		if r["level"] != want[0] || r["msg"] != want[1] {
			t.Errorf("%s: %v %v", line, r["level"], r["msg"])
		}
		if strings.Contains(line, `"n"`) {
			sink, _ := r["sink"].(map[string]any)
			if sink["n"] != "3" || sink["plugin_time"] != "2026-01-02T03:04:05Z" {
				t.Errorf("%s: %v", line, r)
			}
		}
	}
}

// TestAPluginCannotForgeTheDaemonsAttributes: its own names stay in their group.
func TestAPluginCannotForgeTheDaemonsAttributes(t *testing.T) {
	r := logged(t, `{"msg":"x","connector":"payments","stream":"none"}`)
	if r["connector"] != nil || r["stream"] != "stderr" {
		t.Errorf("%v", r)
	}
}

func TestATraceIsReportedAsOne(t *testing.T) {
	logs := &logBuffer{}
	o := &output{log: logs.logger()}
	for _, line := range []string{"working", "panic: boom", "goroutine 1 [running]:", "main.main()", "\t/src/main.go:7"} {
		o.line("stderr", []byte(line))
	}
	if strings.Contains(logs.String(), "boom") {
		t.Error("reported before its end")
	}
	o.end()
	contains(t, logs.String(), `"level":"ERROR"`, "ended with a trace: panic: boom", `main.main()\n    /src/main.go:7`)
	if panicked, last := o.last(2); panicked != "panic: boom" || len(last) != 2 || last[0] != "main.main()" {
		t.Errorf("%q %q", panicked, last)
	}
}

// TestDebugLinesDoNotCrowdOutErrors when the daemon does not log them anyway.
func TestDebugLinesDoNotCrowdOutErrors(t *testing.T) {
	logs := &logBuffer{}
	o := &output{log: slog.New(slog.NewJSONHandler(logs, nil))}
	for range 5 * linesPerSecond {
		o.line("stderr", []byte(`{"level":"DEBUG","msg":"chatter"}`))
	}
	o.line("stderr", []byte(`{"level":"ERROR","msg":"no broker"}`))
	contains(t, logs.String(), "no broker")
	if strings.Contains(logs.String(), "dropped") {
		t.Errorf("dropped: %s", logs)
	}
}

// TestKeptOutputIsBounded, whatever a plugin writes.
func TestKeptOutputIsBounded(t *testing.T) {
	logs := &logBuffer{}
	o := &output{log: logs.logger()}
	for range 10_000 {
		o.line("stderr", []byte(strings.Repeat("z", 1000)))
	}
	o.line("stderr", []byte("panic: boom"))
	for range 200 {
		o.line("stderr", []byte(strings.Repeat("\x01", maxLine)))
	}
	if o.bytes > keptOutput || o.traced > keptOutput+maxLogValue {
		t.Errorf("keeps %d and %d bytes", o.bytes, o.traced)
	}
	if n := len(logs.String()); n > 40*linesPerSecond*maxLogText {
		t.Errorf("logged %d bytes", n)
	}
}

func TestLongLinesComeInPieces(t *testing.T) {
	var pieces []int
	eachLine(strings.NewReader("a\r\n\n"+strings.Repeat("b", 2*maxLine+10)+"\nlast"), func(line []byte) {
		pieces = append(pieces, len(line))
	})
	want := []int{1, maxLine, maxLine, 10, 4}
	if len(pieces) != len(want) {
		t.Fatalf("%v", pieces)
	}
	for i := range want {
		if pieces[i] != want[i] {
			t.Errorf("%v", pieces)
		}
	}
}
