package config

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

// Load reads files, and directories of *.yaml and *.yml files in the order of their names. lookup answers like
// os.LookupEnv. The error, if any, is Problems.
//
// The Config holds the connectors that have no problem, also when others do, so that a daemon can run those. It is nil
// when nothing should run: the daemon section has a problem, or may be in a file that cannot be read, or a path does
// not exist.
func Load(paths []string, lookup func(name string) (value string, set bool)) (*Config, error) {
	l := &loader{lookup: lookup}
	for _, file := range l.list(paths) {
		l.file(file)
	}
	if !l.daemonAt.known() {
		l.decode(&value{data: &mapping{}}, "/daemon", &l.daemon, l.daemon.check)
	}
	l.problems = append(l.problems, sharedTables(l.connectors)...)
	if len(l.problems) == 0 && len(l.connectors) == 0 {
		l.problems = Problems{{Message: "no connectors are configured", Pos: Pos{File: l.files[0]}}}
	}
	if len(l.problems) == 0 {
		return &Config{Daemon: l.daemon, Connectors: l.connectors}, nil
	}
	l.problems.sort(l.files)
	if l.nothingRuns() {
		return nil, l.problems
	}
	good := slices.DeleteFunc(l.connectors, func(c Connector) bool { return l.problems.about(c.Name) })
	return &Config{Daemon: l.daemon, Connectors: good}, l.problems
}

type loader struct {
	lookup     func(string) (string, bool)
	files      []string
	problems   Problems
	daemon     Daemon
	daemonAt   Pos  // where the daemon section is
	unsure     bool // a file that cannot be read may have a daemon section
	connectors []Connector
}

func (l *loader) nothingRuns() bool {
	return l.unsure && !l.daemonAt.known() || slices.ContainsFunc(l.problems, func(p *Problem) bool { return p.daemon })
}

// file reads one file. One that cannot be read spoils nothing else.
func (l *loader) file(file string) {
	l.files = append(l.files, file)
	data, err := readFile(file, maxFile)
	if err != nil {
		l.problems = append(l.problems, &Problem{Pos: Pos{File: file}, Message: "cannot read the file: " + reason(err)})
		l.unsure = true
		return
	}
	root, problem := parseYAML(file, data)
	if problem != nil {
		l.problems = append(l.problems, problem)
		l.unsure = l.unsure || bytes.Contains(data, []byte("daemon"))
		return
	}
	r := &reader{file: file, lookup: l.lookup, anchors: map[string]*value{}}
	v := r.value(root, Pos{File: file, Line: 1, Column: 1}, "", 0)
	l.problems = append(l.problems, r.problems...)
	l.root(v)
}

// root looks into a file's outermost mapping.
func (l *loader) root(v *value) {
	top, ok := v.data.(*mapping)
	if !ok {
		if v.data != nil {
			l.wrong(v.pos, "", "must be a map with the keys daemon and connectors")
		}
		return
	}
	for _, name := range top.names {
		section, at := top.values[name], pointerTo(name)
		switch name {
		case "daemon":
			if l.daemonAt.known() {
				l.wrong(section.pos, at, "is there twice; the first is at %s", l.daemonAt)
				continue
			}
			l.daemonAt = section.pos
			l.decode(section, at, &l.daemon, l.daemon.check)
		case "connectors":
			l.section(section, at)
		default:
			known := []string{"daemon", "connectors"}
			l.wrong(section.pos, at, "is not a known key%s", settings.DidYouMean(name, known))
			l.unsure = l.unsure || settings.Nearest(name, known) == "daemon"
		}
	}
}

// section reads the connectors of one file.
func (l *loader) section(v *value, at string) {
	all, ok := v.data.(*mapping)
	if !ok {
		if !v.bad {
			l.wrong(v.pos, at, "must be a map of names to connectors")
		}
		return
	}
	for _, name := range all.names {
		v, at := all.values[name], pointerTo("connectors", name)
		i := slices.IndexFunc(l.connectors, func(c Connector) bool { return c.Name == name })
		if i >= 0 {
			l.wrong(v.pos, at, "is there twice; the first is at %s", l.connectors[i].Pos)
			continue
		}
		l.connectors = append(l.connectors, l.connector(name, v, at))
	}
}

func (l *loader) connector(name string, v *value, at string) Connector {
	c := Connector{Name: name, Pos: v.pos}
	known := *v
	all, ok := v.data.(*mapping)
	if ok {
		if sink := all.values["sink"]; sink != nil {
			if m, ok := sink.data.(*mapping); ok {
				isPlugin := func(name string) bool { return name == "plugin" }
				c.Sink.Settings = m.only(func(name string) bool { return !isPlugin(name) }).appendJSON(nil)
				c.Sink.positions = sink
				// The other keys are for the plugin to judge.
				known.data = all.with("sink", &value{pos: sink.pos, data: m.only(isPlugin)})
			}
		}
	}
	l.decode(&known, at, &c, func() []core.Diagnostic { return check(&c) })
	return c
}

// decode fills into from v and reports what is wrong with it, by itself and by check.
func (l *loader) decode(v *value, at string, into any, check func() []core.Diagnostic) {
	if v.bad {
		return
	}
	diags := settings.Decode(v.appendJSON(nil), into)
	followsFromOne := func(d core.Diagnostic) bool {
		return slices.ContainsFunc(diags, func(first core.Diagnostic) bool {
			return d.Pointer == first.Pointer || strings.HasPrefix(d.Pointer, first.Pointer+"/")
		})
	}
	more := slices.DeleteFunc(check(), followsFromOne)
	for _, d := range append(diags, more...) {
		// Likewise with what could not even be read.
		if where := v.find(d.Pointer); !where.bad {
			l.wrong(where.pos, at+d.Pointer, "%s", d.Message)
		}
	}
}

func (l *loader) wrong(pos Pos, at, format string, args ...any) {
	l.problems = append(l.problems, problemAt(pos, at, fmt.Sprintf(format, args...)))
}
