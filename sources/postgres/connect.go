package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	workConns      = 8 // connections that read and settle, unless the DSN says pool_max_conns
	keepConns      = 3 // of their own for renewals and heartbeats, which must not wait behind a slow read
	connectTimeout = 10 * time.Second
	pingTimeout    = 3 * time.Second
)

// tracked are the settings of a session that transaction poolers carry along for each client.
var tracked = map[string]string{
	"client_encoding":  "UTF8",
	"application_name": "connectd",
	"timezone":         "UTC",
	"datestyle":        "ISO, MDY",
}

// settings are those of a session that is ours alone. An outbox table is empty when its statistics are taken, or was
// full and is empty now; a plan that reads the whole table must not be chosen for that, nor be kept. The rest bounds
// what a worker that vanished leaves behind, and overrules what a role or a database has for other work.
var settings = map[string]string{
	"enable_seqscan":                      "off",
	"enable_bitmapscan":                   "off",
	"jit":                                 "off",
	"bytea_output":                        "hex", // the only form the client reads, when it gets text
	"default_transaction_isolation":       "read committed",
	"statement_timeout":                   "60s",
	"idle_in_transaction_session_timeout": "10s",
	"lock_timeout":                        "0",
	"tcp_keepalives_idle":                 "30s", // a host that vanished without a word is given up after a minute, not after
	"tcp_keepalives_interval":             "10s", // two hours and more; over a Unix socket these mean nothing
	"tcp_keepalives_count":                "3",
	"tcp_user_timeout":                    "30s",
}

// watchClient has the server look every two seconds, while a statement runs or waits for a lock, whether its client is
// still there: the statement of a worker that was killed would go on waiting for a minute. PostgreSQL 13 does not know
// the setting, and a server on a system where it cannot look refuses it: statement_timeout is all there is then.
// https://www.postgresql.org/docs/current/runtime-config-connection.html#GUC-CLIENT-CONNECTION-CHECK-INTERVAL
func watchClient(ctx context.Context, conn *pgconn.PgConn) error {
	_, err := conn.Exec(ctx, `SELECT set_config('client_connection_check_interval', '2s', false)
		WHERE current_setting('client_connection_check_interval', true) = '0'`).ReadAll()
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// server is how to reach a database.
type server struct {
	cfg *pgxpool.Config
	// pooled: a transaction pooler stands between. A session is not ours then: it has no settings, no prepared
	// statements and no LISTEN.
	pooled bool
	// bytes: the database has no encoding and takes any bytes. Asked for UTF-8 it would refuse a whole page for one row.
	bytes bool
	// anyText: every character can be stored.
	anyText bool
}

// errDSN is what every error about the DSN itself begins with.
var errDSN = errors.New("dsn")

// connection reads the DSN. Its error says nothing of the DSN's content, which may be a password in a wrong place.
func (cfg Config) connection() (*pgxpool.Config, error) {
	if strings.TrimSpace(cfg.DSN) == "" {
		return nil, fmt.Errorf("%w is missing", errDSN)
	}
	c, err := pgxpool.ParseConfig(cfg.DSN)
	if cause := errors.Unwrap(err); cause != nil && strings.Contains(err.Error(), "failed to configure TLS") {
		return nil, fmt.Errorf("%w asks for TLS in a way that cannot be had: %s", errDSN, tlsCause(cause))
	}
	if err != nil || mistyped(cfg.DSN, c.ConnConfig.RuntimeParams) {
		return nil, fmt.Errorf("%w is no connection string: it must be a URL, postgres://user:password@host/database, "+
			"with special characters percent-encoded, or key=value pairs as libpq takes them", errDSN)
	}
	if !strings.Contains(cfg.DSN, "pool_max_conns") {
		c.MaxConns = workConns
	}
	if !strings.Contains(cfg.DSN, "connect_timeout") {
		c.ConnConfig.ConnectTimeout = connectTimeout
	}
	c.PingTimeout = pingTimeout
	if !strings.Contains(cfg.DSN, "target_session_attrs") {
		// A server that became a standby answers as before, and takes no write for ever.
		c.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return c, nil
}

// reach connects once and finds out whether the sessions are ours.
func reach(ctx context.Context, cfg Config) (*server, *pgx.Conn, error) {
	return reachTelling(ctx, cfg, nil)
}

// reachTelling also tells what our own statements have to say: see numberRows.
func reachTelling(ctx context.Context, cfg Config, tell func(string)) (*server, *pgx.Conn, error) {
	c, err := cfg.connection()
	if err != nil {
		return nil, nil, err
	}
	if tell != nil {
		c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			if text, ours := strings.CutPrefix(n.Message, "connectd: "); ours {
				tell(text)
			}
		}
	}
	given := maps.Clone(c.ConnConfig.RuntimeParams)
	s := &server{cfg: c}
	s.settle(given, settings)
	conn, ours, err := s.greet(ctx)
	if err == nil && !ours {
		if conn != nil {
			conn.Close(ctx)
		}
		s.pooled = true
		s.settle(given, nil)
		if !strings.Contains(cfg.DSN, "default_query_exec_mode") {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		conn, _, err = s.greet(ctx)
		if err == nil && conn == nil {
			err = errors.New("the pooler takes none of the parameters a session begins with")
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	if !s.pooled {
		c.ConnConfig.AfterConnect = watchClient
		if err := watchClient(ctx, conn.PgConn()); err != nil {
			conn.Close(ctx)
			return nil, nil, fmt.Errorf("connect: %w", err)
		}
	}
	return s, conn, s.encode(ctx, conn)
}

// greet connects, and says whether the session is ours. It has no connection when a pooler refuses a parameter, since
// it takes only those it can carry along.
func (s *server) greet(ctx context.Context) (conn *pgx.Conn, ours bool, err error) {
	conn, err = s.dial(ctx)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == protocolViolation && strings.Contains(refused.Message, "startup parameter") {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		conn.Close(ctx)
		return nil, false, err
	}
	return conn, pid == conn.PgConn().PID(), nil // a pooler gives its clients process numbers of its own
}

// encode looks at the database's encoding. Text is asked for as UTF-8, whatever that is.
func (s *server) encode(ctx context.Context, conn *pgx.Conn) error {
	var encoding string
	if err := conn.QueryRow(ctx, "SELECT getdatabaseencoding()", pgx.QueryExecModeSimpleProtocol).Scan(&encoding); err != nil {
		conn.Close(ctx)
		return fmt.Errorf("ask for the database's encoding: %w", err)
	}
	s.bytes = encoding == "SQL_ASCII"
	s.anyText = s.bytes || encoding == "UTF8"
	return nil
}

// settle gives the sessions what they are started with. What the DSN says goes before ours, but for what decides how
// text and times come.
func (s *server) settle(given map[string]string, ours map[string]string) {
	params := map[string]string{}
	maps.Copy(params, ours)
	for name, value := range given {
		params[strings.ToLower(name)] = value
	}
	name := params["application_name"]
	maps.Copy(params, tracked)
	if name != "" {
		params["application_name"] = name
	}
	s.cfg.ConnConfig.RuntimeParams = params
}

// pool makes a pool; it connects when it is used.
func (s *server) pool(ctx context.Context, limit int32) (*pgxpool.Pool, error) {
	c := s.cfg.Copy()
	if limit > 0 {
		c.MaxConns = limit
	}
	c.MinConns, c.MinIdleConns = 0, 0
	if s.bytes {
		c.ConnConfig.RuntimeParams["client_encoding"] = "SQL_ASCII"
		if c.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // the other puts arguments into the text, which must be UTF-8 for that
		}
	}
	p, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("make a pool of connections: %w", err)
	}
	return p, nil
}

// dial makes one connection outside of the pools.
func (s *server) dial(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, s.cfg.ConnConfig)
	return conn, discreet(err)
}
