package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core/tlsfiles"
)

// sessionSetup pins what statements rely on, whatever the server and the DSN have. The time zone makes every time UTC.
// The SQL mode makes a double quote a string's, a backslash an escape, a string that is too long an error, and assignments
// of one UPDATE happen from left to right. Waits for locks end soon, since a session whose client is gone goes on waiting,
// with what it has locked; for the same reason an idle session ends soon, and its transaction with it. The last line undoes
// what a server's defaults may do to statements; MariaDB alone would turn a long list of numbers into a join.
const sessionSetup = `SET autocommit = 1, time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',
	innodb_lock_wait_timeout = 5, lock_wait_timeout = 10, wait_timeout = 30,
	sql_safe_updates = 0, sql_select_limit = DEFAULT, sql_auto_is_null = 0 /*M! , in_predicate_conversion_threshold = 0 */`

// isolationSetup: each statement sees what was committed before it began, and nothing locks the gaps between rows, where
// applications insert. It is a statement of its own since the variable's name differs between servers.
const isolationSetup = `SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED`

// maxIdle is how long a connection may lie idle in the pool; the server would end it after wait_timeout.
const maxIdle = 15 * time.Second

// recheck is how long a connection is trusted to lead to a server that takes writes.
const recheck = time.Second

// connector makes connections whose sessions are set up and whose server takes writes.
type connector struct {
	driver.Connector
	database string
	// doubts rises when some connection found its server read-only, or when a new one was made: it may lead elsewhere.
	doubts atomic.Int64
}

// newConnector reads the configuration and opens nothing.
func newConnector(cfg Config) (*connector, error) {
	c, err := parseDSN(cfg.DSN)
	if err != nil {
		return nil, err
	}
	if cfg.TLS != nil {
		if c.TLSConfig != "" {
			return nil, errors.New("tls is given beside the option tls of the dsn: leave out one of them")
		}
		if err := c.Apply(mysql.BeforeConnect(secure(cfg.TLS))); err != nil {
			return nil, errDSN
		}
	}
	base, err := mysql.NewConnector(c)
	if err != nil {
		return nil, errDSN
	}
	return &connector{Connector: base, database: c.DBName}, nil
}

// secure gives each connection the TLS that the files say then.
func secure(settings *tlsfiles.Settings) func(context.Context, *mysql.Config) error {
	source := settings.Source()
	return func(_ context.Context, c *mysql.Config) error {
		t, err := source()
		if err != nil {
			return fmt.Errorf("tls: %w", err)
		}
		if t.ServerName == "" {
			t = t.Clone()
			if t.ServerName, _, err = net.SplitHostPort(c.Addr); err != nil {
				t.ServerName = c.Addr
			}
		}
		c.TLS = t
		return nil
	}
}

// pool returns a pool of at most n connections.
func (c *connector) pool(n int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	db.SetConnMaxIdleTime(maxIdle)
	return db
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	base, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", discreetly(err, c.database))
	}
	s, is := base.(session)
	if !is {
		base.Close()
		return nil, fmt.Errorf("connect: the driver's connection is a %T that lacks a method", base)
	}
	conn := &conn{session: s, from: c}
	for _, setup := range []string{sessionSetup, isolationSetup} {
		if _, err := s.ExecContext(ctx, setup, nil); err != nil {
			base.Close()
			return nil, fmt.Errorf("set up the session: %w", err)
		}
	}
	doubts := c.doubts.Add(1)
	readOnly, err := conn.readOnly(ctx)
	if err != nil {
		base.Close()
		return nil, fmt.Errorf("ask whether the server is read-only: %w", err)
	}
	if readOnly {
		base.Close()
		return nil, errReadOnly
	}
	conn.trust(doubts)
	return conn, nil
}

// session is all that the driver's connections can do.
type session interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// conn is a connection that is dropped when its server turns out to be read-only: after a failover the old primary still
// answers, with what it has, and a proxy may lead reads to a replica. What is read there may be old, and rows that were
// published would be sent again. https://github.com/gpustack/gpustack/issues/6105
type conn struct {
	session
	from   *connector
	doubts int64
	asked  time.Time
}

func (c *conn) trust(doubts int64) { c.doubts, c.asked = doubts, time.Now() }

// ResetSession is called when the connection is taken from the pool.
func (c *conn) ResetSession(ctx context.Context) error {
	if err := c.session.ResetSession(ctx); err != nil {
		return err
	}
	doubts := c.from.doubts.Load()
	if doubts == c.doubts && time.Since(c.asked) < recheck {
		return nil
	}
	readOnly, err := c.readOnly(ctx)
	switch {
	case err != nil:
		return driver.ErrBadConn
	case readOnly:
		c.from.doubts.Add(1)
		return driver.ErrBadConn
	}
	c.trust(doubts)
	return nil
}

// BeginTx begins a transaction whose end is bounded too.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if _, err := c.session.BeginTx(ctx, opts); err != nil {
		return nil, err
	}
	return &transaction{
		commit: func() error { return c.end(ctx, "COMMIT") },
		rollback: func() error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
			defer cancel()
			return c.end(ctx, "ROLLBACK")
		},
	}, nil
}

func (c *conn) end(ctx context.Context, statement string) error {
	_, err := c.session.ExecContext(ctx, statement, nil)
	return err
}

// rollbackLimit is how long to wait until the server has undone a transaction; without an answer the connection goes.
const rollbackLimit = 3 * time.Second

// transaction ends by statements with a context. The driver's own knows of none: when the server, or the way to it, goes
// away without a word, its COMMIT waits for as long as the system tries to send it, which may be a quarter of an hour.
type transaction struct{ commit, rollback func() error }

func (t *transaction) Commit() error { return t.commit() }

func (t *transaction) Rollback() error { return t.rollback() }

// readOnly asks the server. innodb_read_only is what Aurora's readers say.
func (c *conn) readOnly(ctx context.Context) (bool, error) {
	rows, err := c.QueryContext(ctx, `SELECT @@global.read_only IN ('0', 'OFF') AND @@global.innodb_read_only IN ('0', 'OFF')`, nil)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	writable := make([]driver.Value, 1)
	if err := rows.Next(writable); err != nil {
		return false, err
	}
	switch v := writable[0].(type) {
	case int64:
		return v == 0, nil
	case []byte:
		return string(v) == "0", nil
	default:
		return false, fmt.Errorf("the answer is a %T", v)
	}
}
