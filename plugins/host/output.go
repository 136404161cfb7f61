package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/connectd/connectd/plugins"
)

// Bounds for what a plugin may write into the daemon's log; it is untrusted text.
const (
	linesPerSecond = 200 // logged; ten times as many are looked at, so that debug lines do not crowd out errors
	maxLogText     = 8 << 10
	maxLogValue    = 2 << 10
	maxLogAttrs    = 32
	keptOutput     = 64 << 10 // of the last lines, for the report of a crash
)

// output turns what a plugin prints into log records and keeps the last of it. Safe for concurrent use.
type output struct {
	log *slog.Logger

	mu      sync.Mutex
	second  time.Time // begin of the current second
	seen    int       // lines looked at in it
	logged  int       // lines logged in it
	dropped int       // lines not logged since the last report
	tracing bool      // a panic or a goroutine dump has begun: plain lines after it belong to it
	trace   []string  // from its first line, up to the bound
	traced  int       // bytes of trace
	kept    []string  // the last lines
	bytes   int       // of kept
}

// line takes one line of the named stream, which is not empty.
func (o *output) line(stream string, line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keep(line)
	if line[0] == '{' {
		o.tracing = false // a program that goes on logging has not crashed
	} else if o.traced < keptOutput && (o.tracing || beginsTrace(line)) {
		o.tracing = true
		o.addTrace(line) // reported as one at the end
		return
	}
	o.tick(time.Now())
	if o.seen++; o.seen > 10*linesPerSecond {
		o.dropped++
		return
	}
	ctx := context.Background()
	level, text, attrs, structured := parseJSONLine(line)
	if !structured {
		level, text = prefixLevel(string(line)), string(line)
	}
	if !o.log.Enabled(ctx, level) {
		return
	}
	if o.logged++; o.logged > linesPerSecond {
		o.dropped++
		return
	}
	// In a group, so that a plugin can't forge the daemon's own attributes.
	o.log.LogAttrs(ctx, level, plugins.Printable(text, maxLogText),
		slog.String("stream", stream), slog.GroupAttrs("sink", attrs...))
}

// tick begins a new second, once it is time, with a report of what was dropped in the last.
func (o *output) tick(now time.Time) {
	if now.Sub(o.second) >= time.Second {
		o.flush()
		o.second, o.seen, o.logged = now, 0, 0
	}
}

// flush reports dropped lines.
func (o *output) flush() {
	if o.dropped > 0 {
		o.log.Warn("the plugin writes too much, lines were dropped", "dropped", o.dropped, "allowed_per_second", linesPerSecond)
		o.dropped = 0
	}
}

// keep and addTrace must be cheap: they see every line, also of a flood.
func (o *output) keep(line []byte) {
	o.kept = append(o.kept, string(line[:min(len(line), maxLogValue)]))
	o.bytes += len(o.kept[len(o.kept)-1])
	for o.bytes > keptOutput {
		o.bytes -= len(o.kept[0])
		o.kept = o.kept[1:]
	}
}

func (o *output) addTrace(line []byte) {
	o.trace = append(o.trace, string(line[:min(len(line), maxLogValue)]))
	o.traced += len(o.trace[len(o.trace)-1])
}

// end reports what is left to report, the trace of a crash above all.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flush()
	if len(o.trace) == 0 {
		return
	}
	lines := make([]string, len(o.trace))
	for i, l := range o.trace {
		lines[i] = plugins.Printable(strings.ReplaceAll(l, "\t", "    "), maxLogValue)
	}
	o.log.Error("the sink's process ended with a trace: "+lines[0], "trace", strings.Join(lines, "\n"))
}

// last answers the first line of a trace, if there was one, and the last lines, as they were printed.
func (o *output) last(lines int) (panicked string, last []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.trace) > 0 {
		panicked = o.trace[0]
	}
	return panicked, slices.Clone(o.kept[max(0, len(o.kept)-lines):])
}

func beginsTrace(line []byte) bool {
	for _, begin := range []string{"panic: ", "fatal error: ", "SIGQUIT: ", "SIGSEGV: ", "SIGABRT: "} {
		if bytes.HasPrefix(line, []byte(begin)) {
			return true
		}
	}
	return false
}

// prefixLevel is the level of a plain line: by the prefix some loggers write, else info.
func prefixLevel(text string) slog.Level {
	for prefix, level := range map[string]slog.Level{
		"[TRACE]": slog.LevelDebug - 4, "[DEBUG]": slog.LevelDebug, "[INFO]": slog.LevelInfo,
		"[WARN]": slog.LevelWarn, "[ERROR]": slog.LevelError, "[ERR]": slog.LevelError,
	} {
		if strings.HasPrefix(text, prefix) {
			return level
		}
	}
	return slog.LevelInfo
}

// parseJSONLine reads a line of slog's JSON handler, or of hclog's, whose names begin with @.
func parseJSONLine(line []byte) (level slog.Level, text string, attrs []slog.Attr, ok bool) {
	if len(line) == 0 || line[0] != '{' {
		return 0, "", nil, false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) != nil {
		return 0, "", nil, false
	}
	names := [3]string{"level", "msg", "time"}
	if _, hc := fields["@message"]; hc {
		names = [3]string{"@level", "@message", "@timestamp"}
	}
	if json.Unmarshal(fields[names[1]], &text) != nil {
		return 0, "", nil, false
	}
	level = parseLevel(plain(fields[names[0]]))
	delete(fields, names[0])
	delete(fields, names[1])
	keys := make([]string, 0, len(fields))
	for k := range fields {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		if i == maxLogAttrs {
			attrs = append(attrs, slog.Int("more", len(keys)-i))
			break
		}
		name := k
		if k == names[2] {
			name = "plugin_time"
		}
		attrs = append(attrs, slog.String(plugins.Printable(name, 64), plugins.Printable(plain(fields[k]), maxLogValue)))
	}
	return level, text, attrs, true
}

// plain is a JSON value as text: a string's content, anything else as it stands.
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func parseLevel(s string) slog.Level {
	var level slog.Level
	if strings.EqualFold(s, "trace") {
		return slog.LevelDebug - 4
	}
	if level.UnmarshalText([]byte(s)) != nil {
		return slog.LevelInfo
	}
	return level
}

// quoteLines shows a few lines of a plugin's output in an error.
func quoteLines(lines []string) string {
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", plugins.Printable(l, 200))
	}
	return b.String()
}
