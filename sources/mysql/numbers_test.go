package mysql_test

import (
	"math"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
	"github.com/connectd/connectd/sources/sourcetest"
)

// Fetches begin above 0. A row with another number is refused by init, and named where one comes later: no CHECK may refer to
// an AUTO_INCREMENT column.
func TestNumbersBelowOne(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		insert := func(id, seq string) string {
			return "INSERT INTO outbox (seq, id, payload) VALUES (" + seq + ", '" + id + "', 'x')"
		}
		const zero = `SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_VALUE_ON_ZERO')`
		const mend = `INSERT INTO outbox (id, aggregateid, payload) SELECT id, aggregateid, payload FROM again ORDER BY seq`
		again := []string{`DROP TABLE IF EXISTS again`, `CREATE TABLE again AS SELECT * FROM outbox WHERE seq <= 0`, `DELETE FROM outbox WHERE seq <= 0`, mend, `DROP TABLE again`}
		for name, ddl := range map[string]string{"new": "", "adopted": `CREATE TABLE outbox (seq bigint AUTO_INCREMENT PRIMARY KEY, id varchar(64) NOT NULL UNIQUE, aggregateid varchar(64), payload blob) ENGINE=InnoDB`} {
			cfg := srv.config(t)
			if ddl != "" {
				srv.execute(t, cfg, ddl, zero, insert("a", "0"), insert("b", "-5"))
				if _, err := mysql.Plan(t.Context(), cfg, mysql.InitOptions{Existing: "pending"}); err == nil || !strings.Contains(err.Error(), "has a row whose seq is -5") {
					t.Errorf("%s: %v", name, err)
				}
				srv.execute(t, cfg, again...)
			}
			initialise(t, cfg, mysql.InitOptions{Existing: "pending"})
			srv.execute(t, cfg, zero, `INSERT INTO outbox (id, payload) VALUES ('c', 'x')`, insert("d", "0"), insert("e", "-5"))
			sourcetest.WantFinding(t, mysql.Diagnose(t.Context(), cfg), core.Problem, "numbers", `seq is -5 in pending row "e"`, "delete the pending rows with seq <= 0")
			src := source(t, cfg)
			for _, state := range []core.State{"", core.Pending} {
				if list, err := src.List(t.Context(), core.Filter{After: math.MinInt64, State: state}); err != nil || len(list) < 3 || list[0].ID != "e" || list[1].ID != "d" {
					t.Errorf("%s: %v, %+v", name, err, list)
				}
			}
			srv.execute(t, cfg, again...)
			sourcetest.WantFinding(t, mysql.Diagnose(t.Context(), cfg), core.Fine, "numbers")
			if list, err := src.List(t.Context(), core.Filter{State: core.Pending}); err != nil || len(list) < 3 || list[len(list)-1].ID != "d" {
				t.Errorf("%s: %v, %+v", name, err, list)
			}
		}
	})
}
