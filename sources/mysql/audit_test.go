package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

func vandal(db *sql.DB, cfg mysql.Config, table string) *sourcetest.Vandal {
	events := fmt.Sprint("events", databases.Add(1))
	id, state, key := name(cfg, "id", "id"), name(cfg, "state", "state"), "aggregateid"
	if mapped := cfg.Columns["key"]; mapped != nil {
		key = *mapped
	}
	do := func(t *testing.T, text string, args ...any) {
		t.Helper()
		if _, err := db.Exec(text, args...); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return &sourcetest.Vandal{
		Name: events, Key: key,
		Events: func(t *testing.T, ids ...string) {
			do(t, `CREATE TABLE `+events+` (id varchar(200) PRIMARY KEY)`)
			for _, id := range ids {
				do(t, `INSERT INTO `+events+` VALUES (?)`, id)
			}
		},
		Delete: func(t *testing.T, row string) { do(t, `DELETE FROM `+cfg.Table+` WHERE `+id+` = ?`, row) },
		Double: func(t *testing.T, row string) {
			var index string
			must(t, db.QueryRow(`SELECT index_name FROM information_schema.statistics WHERE table_schema = database() AND table_name = ? AND column_name = ? AND non_unique = 0`,
				table, unquoted(id)).Scan(&index))
			do(t, "ALTER TABLE "+cfg.Table+" DROP INDEX `"+index+"`")
			do(t, `INSERT INTO `+cfg.Table+` (`+id+`, payload) VALUES (?, '')`, row)
		},
		// Without strict mode the server stores a word that is none of the enumeration's as no word.
		Damage: func(t *testing.T, row string) {
			conn, err := db.Conn(context.Background())
			must(t, err)
			defer conn.Close()
			for _, text := range []string{`SET sql_mode = ''`, `UPDATE ` + cfg.Table + ` SET ` + state + ` = 'lost' WHERE ` + id + ` = '` + row + `'`, `SET sql_mode = DEFAULT`} {
				_, err := conn.ExecContext(context.Background(), text)
				must(t, err)
			}
		},
		Mend: func(t *testing.T, row string) {
			do(t, `UPDATE `+cfg.Table+` SET `+state+` = 'pending' WHERE `+id+` = ?`, row)
		},
		Adopt: func(t *testing.T, row string) {
			do(t, `UPDATE `+cfg.Table+` SET `+state+` = 'published', `+name(cfg, "published_at", "published_at")+` = UTC_TIMESTAMP(6) - INTERVAL 1 DAY WHERE `+id+` = ?`, row)
		},
		Orphan: func(t *testing.T, d int) {
			do(t, `UPDATE connectd_lease SET epoch = epoch + ? WHERE tbl = ?`, d, table)
		},
		Ledger: func(t *testing.T, d int) {
			do(t, `UPDATE connectd_ledger SET count = count + ? WHERE tbl = ? LIMIT 1`, d, table)
		},
		Run: func(t *testing.T, seq int64, statements []string) {
			conn, err := db.Conn(t.Context())
			must(t, err)
			defer conn.Close()
			names := sourcetest.Documented(seq, cfg.Table, name(cfg, "order", "seq"), table, "")
			for _, s := range statements {
				_, err := conn.ExecContext(t.Context(), names.Replace(s))
				must(t, err)
			}
		},
		Silent: func(t *testing.T) { do(t, `DELETE FROM connectd_worker WHERE tbl = ?`, table) },
	}
}

func unquoted(name string) string { return name[1 : len(name)-1] }
