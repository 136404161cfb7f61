package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// checkLimit bounds one thing that is looked at.
const checkLimit = 5 * time.Second

// doctor looks at one outbox table.
type doctor struct {
	core.Diagnosis
	cfg Config
	db  *sql.DB
	s   *schema
}

// Diagnose looks at everything that a daemon relies on, and says what it found. It changes nothing: it takes the write lock for a
// moment, to see that it can be had, and gives it back. Each look is bounded, also when ctx is not.
func Diagnose(ctx context.Context, cfg Config) core.Diagnosis {
	d := &doctor{cfg: cfg}
	if !d.file() {
		return d.Diagnosis
	}
	d.db = connect(cfg.Path, access{mode: "rw", busy: checkLimit / 2, queryOnly: true})
	d.db.SetMaxOpenConns(readers)
	defer d.db.Close()
	if !d.check(ctx, "table", d.table) || d.s == nil {
		return d.Diagnosis
	}
	d.check(ctx, "rights", d.lock)
	if !d.Looked {
		return d.Diagnosis
	}
	d.check(ctx, "plan", d.plan)
	if !d.Faulty("plan") { // the same index is read
		d.check(ctx, "numbers", d.numbers)
	}
	d.check(ctx, "workers", d.workers)
	return d.Diagnosis
}

// check runs one look. Its error is a problem.
func (d *doctor) check(ctx context.Context, what string, look func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	err := look(ctx)
	switch {
	case err == nil:
	case isBusy(err), errors.Is(err, context.DeadlineExceeded):
		d.Fault(what, "the file stays locked: "+err.Error(), "look for a process with a long transaction (lsof or fuser tell who has the file open)")
	default:
		d.Fault(what, err.Error(), "look whether the file is a SQLite database, on a local disk, and whether this user may read and write it and its directory")
	}
	return err == nil
}

// file looks for the file.
func (d *doctor) file() bool {
	if _, err := d.cfg.resolve(); err != nil {
		d.Fault("file", err.Error(), "correct the source section")
		return false
	}
	info, err := os.Stat(d.cfg.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.Fault("file", "there is no file "+d.cfg.Path, "run `connectd init`, which makes it, or correct source.path")
		return false
	case err != nil:
		d.Fault("file", err.Error(), "let this user into the directory")
		return false
	case !info.Mode().IsRegular():
		d.Fault("file", d.cfg.Path+" is not a regular file", "correct source.path")
		return false
	}
	d.Fine("file", "%s is there", d.cfg.Path)
	return true
}

// table looks at the table and all that init makes.
func (d *doctor) table(ctx context.Context) error {
	var version string
	if err := d.db.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&version); err != nil {
		return err
	}
	s, err := inspect(ctx, d.db, d.cfg)
	var code interface{ Code() int }
	switch {
	case err != nil && !errors.As(err, &code) && ctx.Err() == nil:
		about, flaw := layout.MisfitOf(err)
		d.Fault(about, err.Error(), remedy(flaw))
		return nil
	case err != nil:
		return err
	case !s.exists:
		d.Fault("table", "there is no table "+s.table, "run `connectd init`, which makes it, or correct source.table")
		return nil
	}
	d.s = s
	d.Fine("version", "SQLite %s, which is part of connectd", version)
	d.Fine("table", "%s is there, with the columns that are read", s.table)
	d.Fine("id", "column %s is unique, and its values are not given again", s.cols.ID)
	if s.wal {
		d.Fine("journal", "the journal is a write-ahead log")
	} else {
		d.Warn("journal", "the journal is not a write-ahead log, so readers and writers wait for each other", "run `connectd init`, or leave it to the daemon, which changes it when it starts")
	}
	if layout.Missing(&d.Diagnosis, s.missing(), "") {
		return nil
	}
	d.Looked = true
	d.Fine("index", "%s is there", s.pendingIndex())
	d.Fine("initialised", "all that init makes is there")
	return nil
}

// remedy is what to do about such a table, where the error does not say so itself.
func remedy(flaw layout.Flaw) string {
	switch flaw {
	case layout.NotUnique:
		return "give the column one (CREATE UNIQUE INDEX), or map the name in source.columns to a column that has one"
	case layout.GivenAnew:
		return "map columns.id to a column of unique ids that the application gives, or make the table anew with AUTOINCREMENT"
	case layout.Mismapped:
		return "correct source.columns or source.table"
	default:
		return "name another table in source.table, or change this one"
	}
}

// lock takes the write lock and gives it back: that needs the right to write, and that nobody keeps it.
func (d *doctor) lock(ctx context.Context) error {
	db := connect(d.cfg.Path, access{mode: "rw", busy: checkLimit / 2}) // the other connections cannot write at all
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil) // IMMEDIATE: see connect
	if err != nil {
		return fmt.Errorf("take the write lock: %w", err)
	}
	if err := tx.Rollback(); err != nil {
		return fmt.Errorf("give the write lock back: %w", err)
	}
	d.Fine("rights", "the file can be written, and nobody keeps its lock")
	return nil
}

// plan looks at the plan of the very fetches that a daemon runs.
func (d *doctor) plan(ctx context.Context) error {
	for _, leaveOut := range []bool{false, true} {
		args := []any{int64(0), int64(500)}
		if leaveOut {
			args = append(args, jsonSeqs([]int64{1}), jsonHex([]string{"key"}))
		}
		plan, err := d.explain(ctx, d.s.texts().fetch(leaveOut), args...)
		if err == nil && (!strings.Contains(plan, "USING INDEX "+d.s.pendingIndex()) || strings.Contains(plan, "USE TEMP B-TREE")) {
			err = fmt.Errorf("the fetch sorts, or does not use the index %s: %s", d.s.pendingIndex(), plan)
		}
		if err != nil {
			d.Fault("plan", err.Error(), "drop the index "+d.s.pendingIndex()+", which is not as init makes it, and run `connectd init`")
			return nil
		}
	}
	d.Fine("plan", "the fetch is a scan of index %s, without a sort", d.s.pendingIndex())
	return nil
}

// numbers looks for pending rows that are never read.
func (d *doctor) numbers(ctx context.Context) error {
	src := &Source{s: d.s, text: d.s.texts(), read: d.db}
	first, err := src.List(ctx, layout.EveryPending())
	if err == nil {
		layout.Numbers(&d.Diagnosis, d.s.cols.Order, first)
	}
	return err
}

// explain is the plan of a statement.
func (d *doctor) explain(ctx context.Context, text string, args ...any) (string, error) {
	rows, err := d.db.QueryContext(ctx, "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var id, parent, unused int
		var line string
		if err := rows.Scan(&id, &parent, &unused, &line); err != nil {
			return "", err
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; "), rows.Err()
}

// workers reads what the daemons have written.
func (d *doctor) workers(ctx context.Context) (err error) {
	src := &Source{s: d.s, text: d.s.texts(), read: d.db}
	if d.Diagnosis.Workers, err = src.Workers(ctx); err != nil {
		return err
	}
	if d.Leases, err = src.Leases(ctx); err != nil {
		return err
	}
	return d.db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM connectd_receipt)`).Scan(&d.Receipts)
}
