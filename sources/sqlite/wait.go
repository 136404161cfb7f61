package sqlite

import (
	"context"
	"database/sql"
	"time"
)

// How often the waiter looks whether another connection has committed: often after a commit, since more tend to
// follow, and less after a while of silence, which then costs about one percent of a core.
const (
	pollSoon  = 5 * time.Millisecond
	pollLater = 25 * time.Millisecond
	silence   = 200 * time.Millisecond
)

// seen is what the waiter knew when it looked last.
type seen struct {
	version int64 // the file's data version
	seq     int64 // the highest seq
}

// Wait returns when a row has been inserted since the last call. The file's data version tells of any commit by
// another connection, the relay's own included; so the highest seq is looked at before anybody is woken. While the
// file cannot be read nothing is new: the next fetch will say why.
func (src *Source) Wait(ctx context.Context) error {
	conn, err := src.watch.Conn(ctx)
	if err != nil {
		return pause(ctx, time.Second)
	}
	defer conn.Close()
	version, err := conn.PrepareContext(ctx, `PRAGMA data_version`)
	if err != nil {
		return pause(ctx, time.Second)
	}
	defer version.Close()
	tick := time.NewTicker(pollSoon)
	defer tick.Stop()
	for begun, slow := time.Now(), false; ; {
		fresh, err := src.look(ctx, conn, version)
		if err != nil {
			return pause(ctx, time.Second)
		}
		if fresh {
			return nil
		}
		if !slow && time.Since(begun) > silence {
			slow = true
			tick.Reset(pollLater)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (src *Source) look(ctx context.Context, conn *sql.Conn, version *sql.Stmt) (bool, error) {
	var now seen
	if err := version.QueryRowContext(ctx).Scan(&now.version); err != nil {
		return false, err
	}
	if now.version == src.last.version {
		return false, nil
	}
	err := conn.QueryRowContext(ctx, src.text.fill(`SELECT coalesce(max({order}), 0) FROM {table}`)).Scan(&now.seq)
	if err != nil {
		return false, err
	}
	fresh := now.seq > src.last.seq || src.last.version == 0
	src.last = seen{now.version, max(now.seq, src.last.seq)}
	return fresh, nil
}

// pause waits d, then lets the caller look for itself.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
