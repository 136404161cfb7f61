package mysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

// Random operations give the same answers as the source in memory does.
func TestMySQLAndMemoryAgree(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		one := srv.config(t)
		for seed := range uint64(3) {
			sourcetest.Compare(t, inMemory(), sourcetest.Harness{
				New: func(t *testing.T, o sourcetest.Options) sourcetest.Table {
					cfg := one
					cfg.Table, cfg.DeletePublished = fmt.Sprint("outbox", databases.Add(1)), o.DeletePublished
					initialise(t, cfg, mysql.InitOptions{Partitions: 1})
					return table(t, cfg)
				},
			}, seed, 150)
		}
	})
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
