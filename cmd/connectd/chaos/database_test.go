//go:build linux

package chaos

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/connectd/connectd/scripts/services"
)

// database is where the outbox is, as its application sees it: straight, by none of the proxies.
type database struct {
	db      *sql.DB
	server  string            // its name for services.sh; "" for a file
	servers *services.Servers // which are this test's own
	address string            // of the server
	// dsn is what a daemon is given, to reach the server by way of an address.
	dsn     func(address string) string
	version string        // the statement that asks for it
	dollar  bool          // parameters are $1 and not ?
	clock   time.Duration // how far it is off
}

// with writes a statement's parameters as the server wants them.
func (d *database) with(statement string) string {
	if d.dollar {
		for n := 1; strings.Contains(statement, "?"); n++ {
			statement = strings.Replace(statement, "?", fmt.Sprint("$", n), 1)
		}
	}
	return statement
}

// insert is the application's statement: id, key, type, payload, headers, and when the row was created, if it says so.
func (d *database) insert(ctx context.Context, tx *sql.Tx, created time.Time, row ...any) error {
	columns, values := "id, aggregateid, type, payload, headers", "?, ?, ?, ?, ?"
	if !created.IsZero() {
		columns, values = columns+", created_at", values+", ?"
		if d.server == "" { // SQLite: milliseconds
			row = append(row, created.UnixMilli())
		} else {
			row = append(row, created.UTC())
		}
	}
	_, err := tx.ExecContext(ctx, d.with("INSERT INTO outbox ("+columns+") VALUES ("+values+")"), row...)
	return err
}

// hinder breaks something of the server and returns what mends it.
func (d *database) hinder(a *accident) (mend func() error, err error) {
	switch a.what {
	case databaseKill, databaseRestart:
		return breakServer(d.servers, d.server, a.what == databaseKill)
	case clockForward:
		d.clock += clockJump
	case clockBack:
		d.clock -= a.lasts
	}
	return func() error { return nil }, d.servers.SetClock(d.clock)
}

// breakServer kills a server, or ends it in good order, and returns what starts it again.
func breakServer(servers *services.Servers, name string, kill bool) (mend func() error, err error) {
	how := "stop"
	if kill {
		how = "kill"
	}
	_, err = servers.Try(how, name)
	return func() error {
		_, err := servers.Try("start", name)
		return err
	}, err
}

// pending counts rows that are neither published nor dead.
func (d *database) pending(ctx context.Context) (n int, err error) {
	err = d.db.QueryRowContext(ctx, "SELECT count(*) FROM outbox WHERE state NOT IN ('published', 'dead')").Scan(&n)
	return n, err
}

// flows waits until something has been published.
func (d *database) flows(ctx context.Context) (err error) {
	n := 0
	for end := time.Now().Add(patience); n == 0 && time.Now().Before(end); time.Sleep(look) {
		err = d.db.QueryRowContext(ctx, "SELECT count(*) FROM outbox WHERE state = 'published'").Scan(&n)
	}
	if n == 0 {
		return errors.Join(fmt.Errorf("nothing is published after %v", patience), err)
	}
	return nil
}

// announced lists the inflight rows. Some name no row: they stand for a batch that is settled and whose announcement may
// still come, and stay until the partition changes hands.
func (d *database) announced(ctx context.Context) (batches []string, err error) {
	list, err := d.db.QueryContext(ctx, "SELECT part, epoch, batch, seqs FROM connectd_inflight")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	for list.Next() {
		var part, epoch, batch int64
		var seqs string
		if err := list.Scan(&part, &epoch, &batch, &seqs); err != nil {
			return nil, err
		}
		if len(seqs) > len("[]") {
			batches = append(batches, fmt.Sprintf("partition %d, epoch %d, batch %d: %s", part, epoch, batch, seqs))
		}
	}
	return batches, list.Err()
}

// rows reads the table.
func (d *database) rows(ctx context.Context) (map[string]row, error) {
	list, err := d.db.QueryContext(ctx, "SELECT seq, id, state, attempts, deliveries, crashes, coalesce(last_error, '') FROM outbox")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	rows := map[string]row{}
	for list.Next() {
		var r row
		if err := list.Scan(&r.seq, &r.id, &r.state, &r.attempts, &r.deliveries, &r.crashes, &r.lastError); err != nil {
			return nil, err
		}
		rows[r.id] = r
	}
	return rows, list.Err()
}

// attempts reads the rows' histories, by seq.
func (d *database) attempts(ctx context.Context) (map[int64][]string, error) {
	list, err := d.db.QueryContext(ctx, "SELECT seq, deliveries, code, message FROM connectd_attempt ORDER BY n")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	all := map[int64][]string{}
	for list.Next() {
		var seq int64
		var deliveries int
		var code, message string
		if err := list.Scan(&seq, &deliveries, &code, &message); err != nil {
			return nil, err
		}
		all[seq] = append(all[seq], fmt.Sprintf("after %d sends: %s: %s", deliveries, code, message))
	}
	return all, list.Err()
}

// owner is the worker that a process is, by what it published with its heartbeat; "" when there is none.
func (d *database) owner(ctx context.Context, pid int) (string, error) {
	list, err := d.db.QueryContext(ctx, "SELECT owner, info FROM connectd_worker WHERE info IS NOT NULL")
	if err != nil {
		return "", err
	}
	defer list.Close()
	for list.Next() {
		var owner string
		var info []byte
		if err := list.Scan(&owner, &info); err != nil {
			return "", err
		}
		var published struct{ PID int }
		if json.Unmarshal(info, &published) == nil && published.PID == pid {
			return owner, nil
		}
	}
	return "", list.Err()
}

// leases counts the partitions that a worker has, whether or not they have run out.
func (d *database) leases(ctx context.Context, owner string) (n int, err error) {
	err = d.db.QueryRowContext(ctx, d.with("SELECT count(*) FROM connectd_lease WHERE owner = ?"), owner).Scan(&n)
	return n, err
}

// sending counts the batches that a worker has announced under leases that are its own.
func (d *database) sending(ctx context.Context, owner string) (n int, err error) {
	err = d.db.QueryRowContext(ctx, d.with(`SELECT count(*) FROM connectd_inflight i
		JOIN connectd_lease l ON l.tbl = i.tbl AND l.part = i.part AND l.epoch = i.epoch WHERE l.owner = ?`), owner).Scan(&n)
	return n, err
}

// prepareProbe makes what probe writes to.
func (d *database) prepareProbe(ctx context.Context) error {
	if _, err := d.db.ExecContext(ctx, "CREATE TABLE chaos_probe (n bigint)"); err != nil {
		return err
	}
	_, err := d.db.ExecContext(ctx, "INSERT INTO chaos_probe VALUES (0)")
	return err
}

// probe commits a small write.
func (d *database) probe(ctx context.Context) error {
	_, err := d.db.ExecContext(ctx, "UPDATE chaos_probe SET n = n + 1")
	return err
}
