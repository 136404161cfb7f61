// Package sqlite is the source of an outbox table in a SQLite file. It is one partition: SQLite has one writer at a
// time anyway, so a second daemon on the file stands by.
//
// Times in the file are integers, milliseconds since 1970 in UTC, taken from SQLite's clock after the write lock is
// held. Every transaction that writes begins IMMEDIATE; reads take no lock that anybody waits for (WAL).
//
// The order of rows is an AUTOINCREMENT key, which is never given twice. A table that has none is adopted with a column
// that a trigger fills: a plain rowid is given again after its row is deleted, and VACUUM may change it, so that a late
// settlement could meet another row. The file's text must be UTF-8 and the file on a local disk, as WAL demands.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/connectd/connectd/core"
)

// Source is one outbox table in a SQLite file. All methods may be called from several goroutines at once.
type Source struct {
	s               *schema
	text            texts
	deletePublished bool
	write           *sql.DB // one connection: writers would only wait for each other
	read            *sql.DB
	watch           *sql.DB // one connection, the waiter's
	st              statements
	path            string
	busy            time.Duration
	file            fs.FileInfo // what the path named when it was opened
	last            seen
}

var (
	_ core.Source   = (*Source)(nil)
	_ core.Operator = (*Source)(nil)
	_ core.Waiter   = (*Source)(nil)
)

// readers bounds the connections that read at once: fetches of the engine, and people looking.
const readers = 4

// Open opens an outbox table that init has made. It never creates a file. When the file, the table or something of the
// relay's is not there, the error says what and wraps core.ErrNotInitialised.
func Open(ctx context.Context, cfg Config) (*Source, error) {
	if _, err := cfg.resolve(); err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	info, err := os.Stat(cfg.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("sqlite: no file %s: %w", cfg.Path, core.ErrNotInitialised)
	} else if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	src := &Source{
		deletePublished: cfg.DeletePublished, path: cfg.Path, busy: cfg.busy(), file: info,
		write: connect(cfg.Path, access{mode: "rw", busy: cfg.busy()}),
		read:  connect(cfg.Path, access{mode: "rw", busy: cfg.busy(), queryOnly: true}),
		watch: connect(cfg.Path, access{mode: "rw", busy: cfg.busy(), queryOnly: true}),
	}
	src.write.SetMaxOpenConns(1)
	src.read.SetMaxOpenConns(readers)
	src.read.SetMaxIdleConns(readers)
	src.watch.SetMaxOpenConns(1)
	if err := src.prepare(ctx, cfg); err != nil {
		src.Close()
		return nil, fmt.Errorf("sqlite: open table %s of %s: %w", cfg.Table, cfg.Path, err)
	}
	return src, nil
}

func (src *Source) prepare(ctx context.Context, cfg Config) error {
	s, err := inspect(ctx, src.write, cfg)
	if err != nil {
		return err
	}
	if lost := s.missing(); lost != nil {
		return fmt.Errorf("no %s: %w", strings.Join(lost, ", no "), core.ErrNotInitialised)
	}
	if !s.wal {
		if err := enterWAL(ctx, src.write, cfg.busy()); err != nil {
			return err
		}
	}
	src.s, src.text = s, s.texts()
	return src.st.prepare(ctx, src)
}

// Close closes the connections. It may be called twice.
func (src *Source) Close() error {
	return errors.Join(src.write.Close(), src.read.Close(), src.watch.Close())
}

// Moved says that the path no longer names the file that was opened. The open connections go on with a file that no
// application finds any more, and new ones would open another; only a new Source helps.
func (src *Source) Moved() error {
	switch info, err := os.Stat(src.path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("sqlite: the file %s was deleted or renamed", src.path)
	case err == nil && !os.SameFile(info, src.file):
		return fmt.Errorf("sqlite: the file %s was replaced by another", src.path)
	default:
		return nil
	}
}

// Partitions is always 1.
func (src *Source) Partitions(ctx context.Context) (int, error) { return 1, ctx.Err() }

func (cfg Config) busy() time.Duration { return cmp.Or(cfg.BusyTimeout, defaultBusyTimeout) }

// access is how a file is opened.
type access struct {
	mode      string // ro and rw never create the file, rwc does
	busy      time.Duration
	queryOnly bool
}

// connect returns a pool; the file is opened when it is first used. No path is an empty database in memory.
func connect(path string, a access) *sql.DB {
	q := url.Values{"_txlock": {"immediate"}, "_dqs": {"0"}}
	q.Add("_pragma", "busy_timeout("+strconv.FormatInt(a.busy.Milliseconds(), 10)+")")
	q.Add("_pragma", "synchronous(FULL)")            // a commit outlives a power cut: see the package's documentation
	q.Add("_pragma", "journal_size_limit(67108864)") // the log shrinks again after a long read transaction let it grow
	q.Add("_pragma", "temp_store(MEMORY)")           // what a statement may have to undo
	if a.queryOnly {
		q.Add("_pragma", "query_only(1)")
	}
	name := "file::memory:"
	if path != "" {
		q.Set("mode", a.mode)
		name = "file:" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
	}
	// The driver is registered by the import above, and it checks the name when it connects.
	db, err := sql.Open("sqlite", name+"?"+q.Encode())
	if err != nil {
		panic(err)
	}
	if path == "" {
		db.SetMaxOpenConns(1) // each connection would have a database of its own
	}
	return db
}

// setWAL makes the file's journal a write-ahead log, for good and for every connection.
const setWAL = "PRAGMA journal_mode = WAL"

// enterWAL sets it. SQLite does not wait for a lock here when others want the same, so we do.
func enterWAL(ctx context.Context, db *sql.DB, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		var mode string
		err := db.QueryRowContext(ctx, setWAL).Scan(&mode)
		switch {
		case err == nil && mode == "wal":
			return nil
		case err == nil:
			return fmt.Errorf("the file cannot be used in WAL mode, its journal mode stays %s", mode)
		case !isBusy(err) || time.Now().After(deadline):
			return fmt.Errorf("%s: %w", setWAL, err)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// isBusy tells that somebody else has the lock.
func isBusy(err error) bool {
	var code interface{ Code() int }
	return errors.As(err, &code) && code.Code()&0xff == busyCode
}

// busyCode is SQLITE_BUSY.
const busyCode = 5

// transact runs f in a transaction that holds the write lock from its beginning, so that what f reads cannot change
// under it and the time it reads is not older than the lock.
func (src *Source) transact(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	tx, err := src.write.BeginTx(ctx, nil)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) || isBusy(err) {
			return fmt.Errorf("sqlite: %s: lock the file: it stays locked, look for a long transaction of another process: %w", what, err)
		}
		return fmt.Errorf("sqlite: %s: lock the file: %w", what, err)
	}
	if err := f(tx); err != nil {
		tx.Rollback()
		if errors.Is(err, core.ErrLeaseNotOwned) {
			return core.ErrLeaseNotOwned
		}
		return fmt.Errorf("sqlite: %s: %w", what, err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlite: %s: commit: %w", what, err)
	}
	return nil
}
