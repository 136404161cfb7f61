package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/connectd/connectd/cmd/connectd/daemon"
	"github.com/connectd/connectd/core/config"
	"github.com/connectd/connectd/core/settings"
)

// defaultFile is read when no -c is given.
const defaultFile = "connectd.yaml"

// openTimeout bounds how long a command waits for one database.
const openTimeout = 10 * time.Second

// fileList is the value of -c, which may be repeated.
type fileList []string

func (l *fileList) String() string { return strings.Join(*l, ", ") }

// Set appends; package flag calls it for each -c.
func (l *fileList) Set(s string) error {
	*l = append(*l, s)
	return nil
}

// selection is what -c and --connector select.
type selection struct {
	p         *program
	files     fileList
	connector string
	single    string // why one connector must be chosen where there are several; "" where none must
}

// configFlag declares -c.
func (p *program) configFlag(fs *flag.FlagSet) *selection {
	s := &selection{p: p}
	fs.Var(&s.files, "c", "read this `FILE|DIR`; repeatable (default ./"+defaultFile+")")
	return s
}

// selection declares -c and --connector.
func (p *program) selection(fs *flag.FlagSet) *selection {
	s := p.configFlag(fs)
	fs.StringVar(&s.connector, "connector", "", "only the connector of this `NAME`")
	return s
}

func (s *selection) paths() []string {
	if len(s.files) == 0 {
		return []string{defaultFile}
	}
	return s.files
}

// read loads the configuration and says on stderr what is wrong with it. What is in the configuration is good, also
// when there are problems; when there is nothing to work with it returns errReported.
func (s *selection) read() (*config.Config, config.Problems, error) {
	cfg, err := config.Load(s.paths(), s.p.env)
	var problems config.Problems
	if err != nil && !errors.As(err, &problems) {
		return nil, nil, err
	}
	if cfg != nil {
		problems = append(problems, withoutSource(cfg)...)
	}
	for _, problem := range problems {
		fmt.Fprintf(s.p.stderr, "connectd: %v\n", problem)
	}
	if cfg == nil || len(cfg.Connectors) == 0 {
		return nil, problems, errReported
	}
	return cfg, problems, nil
}

// withoutSource takes the connectors out of the configuration whose source cannot work, and returns why.
func withoutSource(cfg *config.Config) (problems config.Problems) {
	cfg.Connectors = slices.DeleteFunc(cfg.Connectors, func(c config.Connector) bool {
		err := checkSource(c)
		if err != nil {
			problems = append(problems, &config.Problem{
				Pos: c.Pos, Connector: c.Name, Message: fmt.Sprintf("connector %q: %v", c.Name, err),
			})
		}
		return err != nil
	})
	return problems
}

// connectors returns the selected connectors. whole is false when a problem concerns what was selected.
func (s *selection) connectors() (list []config.Connector, whole bool, err error) {
	_, list, whole, err = s.chosen()
	return list, whole, err
}

// chosen is connectors with the configuration they are from.
func (s *selection) chosen() (cfg *config.Config, list []config.Connector, whole bool, err error) {
	cfg, problems, err := s.read()
	if err != nil {
		return nil, nil, false, err
	}
	whole = true
	var known []string
	for _, problem := range problems {
		if problem.Connector != "" {
			known = append(known, problem.Connector)
		}
		whole = whole && s.connector != "" && problem.Connector != s.connector
	}
	for _, c := range cfg.Connectors {
		known = append(known, c.Name)
		if s.connector == "" || c.Name == s.connector {
			list = append(list, c)
		}
	}
	switch {
	case len(list) > 0:
		return cfg, list, whole, nil
	case slices.Contains(known, s.connector): // its problem has been said
		return nil, nil, false, errReported
	default:
		return nil, nil, false, fmt.Errorf("no connector %q in %s%s", s.connector, strings.Join(s.paths(), ", "),
			settings.DidYouMean(s.connector, known))
	}
}

// opened is a connector and its table, or the reason why it could not be opened.
type opened struct {
	config.Connector
	source daemon.Outbox
	err    error
}

// open opens the tables of the connectors, several at a time, in their order. The caller closes those it got.
func open(ctx context.Context, list []config.Connector) []opened {
	all := make([]opened, len(list))
	slots := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for i, c := range list {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, openTimeout)
			defer cancel()
			source, err := openSource(ctx, c, slog.New(slog.DiscardHandler))
			all[i] = opened{c, source, err}
		})
	}
	wg.Wait()
	return all
}

// withTables calls do with the tables that can be opened. The others are named on stderr and fail the command.
func (s *selection) withTables(ctx context.Context, do func([]table) error) error {
	list, whole, err := s.connectors()
	if err != nil {
		return err
	}
	if s.single != "" && s.connector == "" && (len(list) > 1 || !whole) {
		return usagef("choose with --connector NAME: %s", s.single)
	}
	var tables []table
	for _, o := range open(ctx, list) {
		if o.err != nil {
			fmt.Fprintf(s.p.stderr, "connectd: %s: %v\n", o.Name, o.err)
			whole = false
			continue
		}
		defer func() { _ = o.source.Close() }()
		tables = append(tables, openedTable(o))
	}
	if len(tables) == 0 {
		return errReported
	}
	if err := do(tables); err != nil {
		return err
	}
	if !whole {
		return errReported
	}
	return nil
}

// each asks every selected table, several at a time, and answers in the order of the configuration; failed turns the
// reason why a table could not be opened into an answer. whole is false when the configuration has a problem.
func (s *selection) each(ctx context.Context, ask func(context.Context, table) connectorStatus,
	failed func(string, error) connectorStatus) (answers []connectorStatus, whole bool, err error) {
	list, whole, err := s.connectors()
	if err != nil {
		return nil, false, err
	}
	all := open(ctx, list)
	answers = make([]connectorStatus, len(all))
	var wg sync.WaitGroup
	for i, o := range all {
		if o.err != nil {
			answers[i] = failed(o.Name, o.err)
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, openTimeout)
			defer cancel()
			answers[i] = ask(ctx, openedTable(o))
			_ = o.source.Close()
		})
	}
	wg.Wait()
	return answers, whole, nil
}

// singleFile says whether the configuration is one file: then one problem in it stops everything.
func (s *selection) singleFile() bool {
	paths := s.paths()
	if len(paths) != 1 {
		return false
	}
	info, err := os.Stat(paths[0])
	return err != nil || !info.IsDir()
}
