package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// MySQL ends a transaction for some errors, such as a deadlock. With autocommit each statement that the effect sends after
// that would be committed by itself. Without, it begins another transaction, which has no savepoint of ours and is rolled
// back.
const (
	autocommitOff  = "SET @connectd_autocommit = @@SESSION.autocommit, SESSION autocommit = 0"
	autocommitBack = "SET SESSION autocommit = @connectd_autocommit"
)

// withoutAutocommit takes a connection out of the pool.
func withoutAutocommit(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, autocommitOff); err != nil {
		discard(conn)
		return nil, err
	}
	return conn, nil
}

// giveBack makes the connection as it was. What may still be open is rolled back first, since turning autocommit on commits
// it. A connection on which that fails is closed.
func giveBack(ctx context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	for _, statement := range []string{"ROLLBACK", autocommitBack} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			discard(conn)
			return
		}
	}
	conn.Close()
}

// discard closes a connection, and does not give it back to its pool.
func discard(conn *sql.Conn) {
	conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // it is the error that was given
	conn.Close()
}
