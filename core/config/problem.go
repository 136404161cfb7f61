package config

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong.
type Problem struct {
	Pos Pos
	// Connector is the connector that cannot be used because of it; "" when it is not about one.
	Connector string
	// Message says what is wrong and what to do. It contains no value.
	Message string

	daemon bool // nothing should run with it
}

// problemAt makes a problem of a predicate about the place that a JSON pointer into the file names.
func problemAt(pos Pos, pointer, predicate string) *Problem {
	p := &Problem{Pos: pos}
	names, subject := tokens(pointer), ""
	p.daemon = len(names) > 0 && names[0] == "daemon"
	if len(names) > 1 && names[0] == "connectors" {
		p.Connector = names[1]
		subject = "connector " + strconv.Quote(p.Connector) + ": "
		if names = names[2:]; len(names) == 0 {
			names = []string{"it"}
		}
	}
	if len(names) == 0 {
		names = []string{"the file"}
	}
	p.Message = subject + strings.Join(names, ".") + " " + predicate
	return p
}

// Error is "file:line:column: message".
func (p *Problem) Error() string { return p.Pos.String() + ": " + p.Message }

// Problems is the error of Load: everything that is wrong, in the order of the files.
type Problems []*Problem

// Error is one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// sort orders by place; files keep the order in which they were read.
func (ps Problems) sort(files []string) {
	slices.SortStableFunc(ps, func(a, b *Problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.Pos.File), slices.Index(files, b.Pos.File)),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column))
	})
}

// about says whether one of the problems is the connector's.
func (ps Problems) about(connector string) bool {
	return slices.ContainsFunc(ps, func(p *Problem) bool { return p.Connector == connector })
}

// Predicates without a value.
var (
	errKeep    = errors.New(`must be "keep", or a duration with a unit, such as "24h" or "7d"`)
	errListen  = errors.New(`must be host:port, such as 127.0.0.1:8083, or off`)
	errNoToken = errors.New("is not a loopback address; to listen there, set daemon.token")
)
