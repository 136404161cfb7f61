//go:build linux

package bench

import (
	"context"
	"database/sql"
	"errors"
	"testing"
)

func benchmarkSQLiteClean(b *testing.B, p programs, r *report) {
	r.benchmarkClean(b, "SQLite", func(b *testing.B, sections string) cleaned {
		s := newSetup(b, p, nullSinkYAML, sections)
		sqliteTable(b, p, s.database(), *bookRows, *bookRows)
		db, filling := openDatabase(b, s.database()), openDatabase(b, s.database())
		db.SetMaxOpenConns(1)
		return cleaned{
			setup: s, db: db, first: 1,
			fill: func() { sqliteFill(b, filling, *bookRows+1, *bookRows+drainedBeside(), 0) },
			touch: func(ctx context.Context, _ int) error {
				tx, err := db.BeginTx(ctx, nil) // the file has one lock for all who write
				if err != nil {
					return err
				}
				return tx.Rollback()
			},
			drop: func() {
				_, _ = db.Close(), filling.Close()
				remove(b, s.database())
			},
		}
	})
}

func benchmarkPostgresClean(b *testing.B, p programs, s *server, r *report) {
	var template *database
	r.benchmarkClean(b, s.name, func(b *testing.B, sections string) cleaned {
		if template == nil {
			from := pgTemplate(b, p, s, *bookRows, rowsKept, false)
			template = s.newDatabase(b, from.name)
			from.drop(b)
			template.run(b, `UPDATE outbox SET state = 'published', deliveries = 1, published_at = now() - interval '2 days'`, `VACUUM (ANALYZE) outbox`)
			if err := template.db.Close(); err != nil {
				b.Fatal(err)
			}
			s.exec(b, `CHECKPOINT`)
		}
		d := s.newDatabase(b, template.name)
		return d.cleaned(b, p, sections, `SELECT 1 FROM outbox WHERE seq = $1 FOR KEY SHARE`, func() {
			if _, err := d.db.ExecContext(b.Context(), insertSomeOf(payloadBytes), *bookRows+1, *bookRows+drainedBeside()); err != nil {
				b.Fatal(err)
			}
		})
	})
}

// benchmarkMySQLClean is for MySQL and for MariaDB.
func benchmarkMySQLClean(b *testing.B, p programs, s *server, r *report) {
	r.benchmarkClean(b, s.name, func(b *testing.B, sections string) cleaned {
		d := mysqlTemplate(b, p, s, *bookRows, rowsKept, *bookRows)
		return d.cleaned(b, p, sections, `SELECT 1 FROM outbox WHERE seq = ? LOCK IN SHARE MODE`, func() {
			d.run(b, mysqlInsert(*bookRows, *bookRows+drainedBeside(), 0))
		})
	})
}

// cleaned is a server's table; touch locks a row of a number for as long as the statement takes.
func (d *database) cleaned(b *testing.B, p programs, sections, touch string, fill func()) cleaned {
	var first int
	d.query(b, `SELECT min(seq) FROM outbox`, &first)
	return cleaned{
		setup: d.setup(b, p, "", nullSinkYAML, sections), db: d.db, first: first, fill: fill,
		touch: func(ctx context.Context, seq int) error {
			var one int
			if err := d.db.QueryRowContext(ctx, touch, seq).Scan(&one); !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			return nil
		},
		drop: func() { d.drop(b) },
	}
}
