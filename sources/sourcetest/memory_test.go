package sourcetest_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/sources/sourcetest"
)

func TestMain(m *testing.M) {
	sourcetest.Abroad()
	goleak.VerifyTestMain(m)
}

func TestMemory(t *testing.T) {
	for name, partitions := range map[string]int{"one partition": 1, "seven partitions": 7} {
		t.Run(name, func(t *testing.T) {
			sourcetest.Run(t, sourcetest.Harness{
				AnyText: true, AnyHeaders: true, Overlap: true,
				New: func(_ *testing.T, o sourcetest.Options) sourcetest.Table {
					s := memory.NewSource(partitions, time.Now)
					s.KeepPublished = !o.DeletePublished
					return table(s)
				},
			})
		})
	}
}

// tx is an application's transaction.
type tx struct{ *memory.Tx }

func (x tx) Insert(_ *testing.T, rows ...sourcetest.Row) {
	for _, r := range rows {
		x.Tx.Insert(memory.Row(r))
	}
}

func (x tx) Commit(*testing.T)   { x.Tx.Commit() }
func (x tx) Rollback(*testing.T) { x.Tx.Rollback() }

func table(s *memory.Source) sourcetest.Table {
	return sourcetest.Table{
		Open:  func(*testing.T) core.Source { return s },
		Begin: func(*testing.T) sourcetest.Tx { return tx{s.Begin()} },
		Insert: func(t *testing.T, rows ...sourcetest.Row) {
			x := tx{s.Begin()}
			x.Insert(t, rows...)
			x.Commit(t)
		},
		NextSeq: func(_ *testing.T, seq int64) {
			x := s.Begin()
			x.InsertAt(seq-1, memory.Row{})
			x.Rollback()
		},
		Beside: func(*testing.T) sourcetest.Table { return table(s.Beside()) },
		Ledger: func(*testing.T) map[core.State]int { return s.Ledger() },
	}
}
