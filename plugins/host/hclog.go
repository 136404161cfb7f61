package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// hclogger gives go-plugin a logger. What go-plugin says is detail below what the host itself reports about a process,
// so all of it goes to the debug level, with its own level as an attribute.
type hclogger struct {
	log  *slog.Logger
	name string
	args []any
}

var _ hclog.Logger = (*hclogger)(nil)

func (l *hclogger) Log(level hclog.Level, msg string, args ...any) {
	if !l.IsDebug() {
		return
	}
	all := append(append([]any{"level", level.String()}, l.args...), args...)
	attrs := make([]slog.Attr, 0, len(all)/2+1)
	for i := 0; i < len(all); i += 2 {
		value := any("(missing)")
		if i+1 < len(all) {
			value = all[i+1]
		}
		attrs = append(attrs, slog.Any(fmt.Sprint(all[i]), value))
	}
	l.log.LogAttrs(context.Background(), slog.LevelDebug, msg, slog.GroupAttrs("go_plugin", attrs...))
}

func (l *hclogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *hclogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *hclogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *hclogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *hclogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *hclogger) IsTrace() bool { return false } // go-plugin formats each piece of data for it
func (l *hclogger) IsDebug() bool { return l.log.Enabled(context.Background(), slog.LevelDebug) }
func (l *hclogger) IsInfo() bool  { return l.IsDebug() }
func (l *hclogger) IsWarn() bool  { return l.IsDebug() }
func (l *hclogger) IsError() bool { return l.IsDebug() }

func (l *hclogger) ImpliedArgs() []any { return l.args }
func (l *hclogger) With(args ...any) hclog.Logger {
	return &hclogger{log: l.log, name: l.name, args: append(append([]any(nil), l.args...), args...)}
}
func (l *hclogger) Name() string { return l.name }
func (l *hclogger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}
func (l *hclogger) ResetNamed(name string) hclog.Logger {
	return &hclogger{log: l.log, name: name, args: l.args}
}
func (l *hclogger) SetLevel(hclog.Level)  {}
func (l *hclogger) GetLevel() hclog.Level { return hclog.Debug }

func (l *hclogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(nil), "", 0)
}

func (l *hclogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return debugWriter{l} }

type debugWriter struct{ l *hclogger }

func (w debugWriter) Write(p []byte) (int, error) {
	w.l.Debug(string(bytes.TrimRight(p, "\n")))
	return len(p), nil
}
