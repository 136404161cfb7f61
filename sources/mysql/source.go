// Package mysql is the source of an outbox table in MySQL (8.0.13 and later, 9) or MariaDB (10.6 and later). One package
// serves both. They differ in little that a user sees: MariaDB keeps JSON as the text that was inserted, MySQL normalises
// it; MariaDB has a type uuid, elsewhere a uuid is char(36) or binary(16).
//
// Rows have an AUTO_INCREMENT order column, which is the primary key of a table that init makes, and an index on state,
// partition and order, which serves exactly the fetch: what is kept does not slow it. Publishing moves a row's entry in
// that index, or deletes the row where nothing is kept; both touch the row by its order column alone, in short
// transactions at READ COMMITTED, under which InnoDB locks no gaps. So the relay locks nothing that an inserting
// transaction wants, and no application's transaction is ever aborted for its sake.
//
// Times are DATETIME(6) in UTC by the server's clock. A time of insertion in a DATETIME column of an adopted table is
// taken as UTC, since nothing says whose local time it would be; a TIMESTAMP has no such doubt.
//
// Reads and writes must go to one server that takes writes, the primary. A connection to a server that is read-only is
// dropped, so a failover behind a name or a proxy is followed; reads that a proxy sends to replicas are an error. In a
// Galera cluster use one node: a lock that a node's transaction holds is not known to the others.
//
// A source has at most ten connections. The announcements that make repeats known are as durable as the server makes a
// commit: innodb_flush_log_at_trx_commit should be 1, as it is by default.
//
// A daemon's user needs SELECT, INSERT, UPDATE and DELETE in the database, and for the best of it PROCESS (see
// Config.MaxTransaction); init needs CREATE, ALTER, INDEX and LOCK TABLES as well.
//
// TRUNCATE of the table gives its numbers again, to rows that daemons at work may take for old ones: delete instead.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// Source is one outbox table in a database. All methods may be called from several goroutines at once.
type Source struct {
	s               *schema
	text            texts
	deletePublished bool
	from            *connector
	work            *sql.DB // what reads and settles
	keep            *sql.DB // leases and heartbeats, which must not wait for those
	horizon         *horizon
	rowSize         atomic.Int64 // bytes of a row that was read lately
	repeated        atomic.Int64 // transactions that were run again
	version         atomic.Int64 // of the schema, by the last heartbeat; 0: none yet
}

var (
	_ core.Source   = (*Source)(nil)
	_ core.Operator = (*Source)(nil)
)

// workConns bounds the connections that read and settle, keepConns those for leases.
const (
	workConns = 8
	keepConns = 2
)

// Open opens an outbox table that init has made. When the table or something of the relay's is not there, the error says
// what and wraps core.ErrNotInitialised.
func Open(ctx context.Context, cfg Config) (*Source, error) {
	src, err := open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("mysql: open table %s: %w", cfg.Table, discreet(err))
	}
	return src, nil
}

func open(ctx context.Context, cfg Config) (*Source, error) {
	src := &Source{deletePublished: cfg.DeletePublished}
	err := withConn(ctx, cfg, func(conn *sql.Conn) error {
		s, err := inspect(ctx, conn, cfg)
		if err != nil {
			return err
		}
		if lost := s.missing(); lost != nil {
			return fmt.Errorf("no %s: %w", strings.Join(lost, ", no "), core.ErrNotInitialised)
		}
		src.s, src.text = s, s.texts()
		return s.samePartitions()
	})
	if err != nil {
		return nil, err
	}
	if src.from, err = newConnector(cfg); err != nil {
		return nil, err
	}
	src.work, src.keep = src.from.pool(workConns), src.from.pool(keepConns)
	src.horizon = newHorizon(cfg.MaxTransaction)
	return src, nil
}

// Close closes the connections; what runs on them fails. It may be called twice.
func (src *Source) Close() error {
	return errors.Join(src.work.Close(), src.keep.Close())
}

// Moved says that the table was prepared, since it was opened, by a connectd whose schema this one does not know.
func (src *Source) Moved() error {
	if err := layout.CheckVersion(int(src.version.Load()), schemaVersion); err != nil {
		return fmt.Errorf("mysql: table %s: %w", src.s.table, err)
	}
	return nil
}

// Partitions is the number that was chosen when the table was initialised.
func (src *Source) Partitions(ctx context.Context) (int, error) { return src.s.partitions, ctx.Err() }
