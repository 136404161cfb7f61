package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// Source is one outbox table in a PostgreSQL database. All methods may be called from several goroutines at once.
type Source struct {
	s               *schema
	text            texts
	deletePublished bool
	work, keep      *pgxpool.Pool
	pooled          bool // a transaction pooler stands between
	ascii           bool // the database's encoding does not have every character
	poll            Poll
	listen          *listener // nil: rows are not announced
	horizon         horizon
	order           *barrier // nil: rows do not wait for older transactions
	last            lookout
	seen            atomic.Int64 // the highest seq that was read
	version         atomic.Int64 // of the schema, by the last heartbeat; 0: none yet
}

var (
	_ core.Source   = (*Source)(nil)
	_ core.Operator = (*Source)(nil)
	_ core.Waiter   = (*Source)(nil)
)

// Open opens an outbox table that init has made. When the table or something of the relay's is not there, the error
// says what and wraps core.ErrNotInitialised.
func Open(ctx context.Context, cfg Config) (*Source, error) {
	src, err := open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: open table %s: %w", cfg.Table, err)
	}
	return src, nil
}

func open(ctx context.Context, cfg Config) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	srv, conn, err := reach(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s, err := prepare(ctx, conn, cfg)
	if err != nil {
		conn.Close(ctx)
		return nil, err
	}
	src := &Source{s: s, text: s.texts(), deletePublished: cfg.DeletePublished, pooled: srv.pooled, ascii: !srv.anyText, poll: cfg.Poll.orDefault()}
	if cfg.CommitOrder {
		if src.order, err = newBarrier(ctx, conn, s); err != nil {
			conn.Close(ctx)
			return nil, err
		}
	}
	conn.Close(ctx)
	// The pools live longer than ctx; they connect when they are used.
	if src.work, err = srv.pool(context.WithoutCancel(ctx), 0); err != nil {
		return nil, err
	}
	if src.keep, err = srv.pool(context.WithoutCancel(ctx), keepConns); err != nil {
		src.work.Close()
		return nil, err
	}
	if cfg.Notify != NotifyOff {
		src.listen = src.startListener(context.WithoutCancel(ctx), srv, cfg.logger().With("table", s.table.String()))
		if err := src.listen.ready(ctx); err != nil {
			src.Close()
			return nil, err
		}
	}
	return src, nil
}

// prepare checks that everything is there.
func prepare(ctx context.Context, conn *pgx.Conn, cfg Config) (*schema, error) {
	s, err := inspect(ctx, conn, cfg)
	if err != nil {
		return nil, err
	}
	if lost := s.missing(); lost != nil {
		return nil, fmt.Errorf("no %s: %w", strings.Join(lost, ", no "), core.ErrNotInitialised)
	}
	return s, s.samePartitions()
}

// closeLimit is how long Close waits for calls under way.
const closeLimit = 5 * time.Second

// Close closes the connections. It may be called twice.
func (src *Source) Close() error {
	if src.listen != nil {
		src.listen.close()
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		src.work.Close()
		src.keep.Close()
	}()
	timer := time.NewTimer(closeLimit)
	defer timer.Stop()
	select {
	case <-closed:
		return nil
	case <-timer.C:
		return errors.New("postgres: close: calls are still under way")
	}
}

// Moved says that the table was prepared, since it was opened, by a connectd whose schema this one does not know.
func (src *Source) Moved() error {
	if err := layout.CheckVersion(int(src.version.Load()), schemaVersion); err != nil {
		return fmt.Errorf("postgres: table %s: %w", src.s.table, err)
	}
	return nil
}

// Partitions is the number that was chosen when the table was initialised.
func (src *Source) Partitions(ctx context.Context) (int, error) { return src.s.partitions, ctx.Err() }
