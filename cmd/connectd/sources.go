package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/connectd/connectd/cmd/connectd/daemon"
	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/config"
	"github.com/connectd/connectd/core/layout"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/postgres"
	"github.com/connectd/connectd/sources/sqlite"
)

// sourceKind is a kind of database that outbox tables are read from.
type sourceKind struct {
	// check says what of a connector's source cannot work, without a look at the database.
	check func(c config.Connector) error
	// open opens its outbox table, to work on it or only to audit it.
	open func(ctx context.Context, c config.Connector, toAudit bool, log *slog.Logger) (daemon.Outbox, error)
	// plan says what `init` would do, and returns how to do it.
	plan func(ctx context.Context, c config.Connector, o initOptions) (core.Plan, func(context.Context) error, error)
	// diagnose says what of its set-up works and what does not.
	diagnose func(ctx context.Context, c config.Connector) core.Diagnosis
}

// initOptions is what only a person can answer.
type initOptions struct {
	existing   string            // what the rows of an adopted table are; "" when nobody said
	partitions int               // of a table that has none yet; 0: the source's default
	tell       func(text string) // is told what init waits for
}

// sourceKinds are the kinds by the name that source.plugin gives.
func sourceKinds() map[string]sourceKind {
	return map[string]sourceKind{
		"sqlite": {
			check: func(c config.Connector) error { return sqliteConfig(c).Validate() },
			open: func(ctx context.Context, c config.Connector, toAudit bool, _ *slog.Logger) (daemon.Outbox, error) {
				cfg := sqliteConfig(c)
				cfg.ToAudit = toAudit
				return sqlite.Open(ctx, cfg)
			},
			plan: func(ctx context.Context, c config.Connector, o initOptions) (core.Plan, func(context.Context) error, error) {
				if o.partitions > 1 {
					return core.Plan{}, nil, usagef("--partitions is for servers; a SQLite file has one writer and one partition")
				}
				cfg := sqliteConfig(c)
				steps, err := sqlite.Plan(ctx, cfg, sqlite.InitOptions{Existing: o.existing})
				return steps, func(ctx context.Context) error { return sqlite.Apply(ctx, cfg, steps) }, err
			},
			diagnose: func(ctx context.Context, c config.Connector) core.Diagnosis {
				return sqlite.Diagnose(ctx, sqliteConfig(c))
			},
		},
		"postgres": {
			check: func(c config.Connector) error { return postgresConfig(c, nil).Validate() },
			open: func(ctx context.Context, c config.Connector, toAudit bool, log *slog.Logger) (daemon.Outbox, error) {
				cfg := postgresConfig(c, log)
				cfg.ToAudit = toAudit
				return postgres.Open(ctx, cfg)
			},
			plan: func(ctx context.Context, c config.Connector, o initOptions) (core.Plan, func(context.Context) error, error) {
				cfg, opt := postgresConfig(c, nil), postgres.InitOptions{Existing: o.existing, Partitions: o.partitions, Tell: o.tell}
				steps, err := postgres.Plan(ctx, cfg, opt)
				return steps, func(ctx context.Context) error { return postgres.Apply(ctx, cfg, opt, steps) }, err
			},
			diagnose: func(ctx context.Context, c config.Connector) core.Diagnosis {
				return postgres.Diagnose(ctx, postgresConfig(c, nil))
			},
		},
		"mysql": {
			check: func(c config.Connector) error { return mysqlConfig(c).Validate() },
			open: func(ctx context.Context, c config.Connector, toAudit bool, _ *slog.Logger) (daemon.Outbox, error) {
				cfg := mysqlConfig(c)
				cfg.ToAudit = toAudit
				return mysql.Open(ctx, cfg)
			},
			plan: func(ctx context.Context, c config.Connector, o initOptions) (core.Plan, func(context.Context) error, error) {
				cfg, opt := mysqlConfig(c), mysql.InitOptions{Existing: o.existing, Partitions: o.partitions, Tell: o.tell}
				steps, err := mysql.Plan(ctx, cfg, opt)
				return steps, func(ctx context.Context) error { return mysql.Apply(ctx, cfg, opt, steps) }, err
			},
			diagnose: func(ctx context.Context, c config.Connector) core.Diagnosis {
				return mysql.Diagnose(ctx, mysqlConfig(c))
			},
		},
	}
}

// checkSource says what of a connector's source cannot work, without a look at the database.
func checkSource(c config.Connector) error {
	if err := sourceKinds()[c.Source.Plugin].check(c); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	return nil
}

// openSource opens a connector's outbox table.
func openSource(ctx context.Context, c config.Connector, log *slog.Logger) (daemon.Outbox, error) {
	return openFor(ctx, c, false, log)
}

// openToAudit is openSource for an audit, which looks at a table that no daemon would work on as well.
func openToAudit(ctx context.Context, c config.Connector, log *slog.Logger) (daemon.Outbox, error) {
	return openFor(ctx, c, true, log)
}

func openFor(ctx context.Context, c config.Connector, toAudit bool, log *slog.Logger) (daemon.Outbox, error) {
	source, err := sourceKinds()[c.Source.Plugin].open(ctx, c, toAudit, log)
	if err != nil {
		return nil, err // not the nil pointer of some type
	}
	return source, nil
}

// plan says what `init` would do for a connector, and returns how to do it.
func plan(ctx context.Context, c config.Connector, o initOptions) (core.Plan, func(context.Context) error, error) {
	return sourceKinds()[c.Source.Plugin].plan(ctx, c, o)
}

// diagnoseSource says what of a connector's source works and what does not.
func diagnoseSource(ctx context.Context, c config.Connector) core.Diagnosis {
	return sourceKinds()[c.Source.Plugin].diagnose(ctx, c)
}

func sqliteConfig(c config.Connector) sqlite.Config {
	return sqlite.Config{
		Path: c.Source.Path, Table: c.Source.Table, Columns: c.Source.Columns, HeaderColumns: headerColumns(c),
		DeletePublished: deletesPublished(c),
	}
}

func postgresConfig(c config.Connector, log *slog.Logger) postgres.Config {
	return postgres.Config{
		DSN: c.Source.DSN.Reveal(), Table: c.Source.Table, Columns: c.Source.Columns, HeaderColumns: headerColumns(c),
		DeletePublished: deletesPublished(c), CommitOrder: c.Delivery.Ordering == "commit", Notify: postgres.Notify(c.Source.Notify), Log: log,
		Poll: postgres.Poll{Min: time.Duration(c.Source.Poll.Min), Max: time.Duration(c.Source.Poll.Max)},
	}
}

func mysqlConfig(c config.Connector) mysql.Config {
	return mysql.Config{
		DSN: c.Source.DSN.Reveal(), TLS: c.Source.TLS, Table: c.Source.Table, Columns: c.Source.Columns, HeaderColumns: headerColumns(c),
		DeletePublished: deletesPublished(c), MaxTransaction: time.Duration(c.Source.MaxTransaction),
	}
}

// headerColumns are in the order of the headers' names.
func headerColumns(c config.Connector) []layout.HeaderColumn {
	var list []layout.HeaderColumn
	for _, header := range slices.Sorted(maps.Keys(c.Source.HeaderColumns)) {
		list = append(list, layout.HeaderColumn{Header: header, Column: c.Source.HeaderColumns[header]})
	}
	return list
}

// deletesPublished says that a published row is deleted when it is delivered. One that waits for its receipt is cleaned
// later.
func deletesPublished(c config.Connector) bool {
	return !c.Retention.Published.Forever && c.Retention.Published.For == 0 && !c.Retention.RequireReceipt
}
