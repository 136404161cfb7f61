package sqlite_test

import (
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/sources/sourcetest"
	"github.com/connectd/connectd/sources/sqlite"
)

// Random operations give the same answers as the source in memory does.
func TestSQLiteAndMemoryAgree(t *testing.T) {
	for seed := range uint64(4) {
		sourcetest.Compare(t, inMemory(), sourcetest.Harness{
			New: func(t *testing.T, o sourcetest.Options) sourcetest.Table {
				return table(t, sqlite.Config{Path: file(t), Table: "outbox", DeletePublished: o.DeletePublished})
			},
		}, seed, 150)
	}
}

func inMemory() sourcetest.Harness {
	return sourcetest.Harness{
		New: func(_ *testing.T, o sourcetest.Options) sourcetest.Table {
			s := memory.NewSource(1, time.Now)
			s.KeepPublished = !o.DeletePublished
			return sourcetest.Table{
				Open: func(*testing.T) core.Source { return s },
				Insert: func(_ *testing.T, rows ...sourcetest.Row) {
					tx := s.Begin()
					for _, r := range rows {
						tx.Insert(memory.Row(r))
					}
					tx.Commit()
				},
			}
		},
	}
}
