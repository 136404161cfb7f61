package mysql_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sources/mysql"
)

// A table without a time of insertion gets one, with the server's clock: old rows have none, nothing is copied.
func TestATimeOfInsertionIsAdded(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for _, ddl := range []string{
			`CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob) ENGINE=InnoDB`,
			`CREATE TABLE outbox (n bigint AUTO_INCREMENT PRIMARY KEY, id varchar(64) UNIQUE, aggregateid varchar(64), payload blob) ENGINE=InnoDB`,
		} {
			for _, existing := range []string{"pending", "published"} {
				for interrupted := range 2 {
					cfg := srv.config(t)
					insert := func(id string) {
						t.Helper()
						elsewhere := cfg
						elsewhere.DSN = withOptions(cfg.DSN, "time_zone=%27%2B09%3A00%27")
						srv.execute(t, elsewhere, `INSERT INTO outbox (id, aggregateid, payload) VALUES ('`+id+`', 'k', 'x')`)
					}
					srv.execute(t, cfg, ddl)
					insert("b")
					insert("a")
					opt := mysql.InitOptions{Existing: existing}
					plan, err := mysql.Plan(t.Context(), cfg, opt)
					must(t, err)
					added := slices.IndexFunc(plan.Steps, func(s core.PlanStep) bool { return strings.Contains(s.SQL, "ADD COLUMN `created_at`") })
					if added < 0 || !strings.Contains(plan.Steps[added].SQL, "ALGORITHM=INSTANT") || !strings.Contains(plan.Steps[added+1].SQL, "ALGORITHM=INSTANT") {
						t.Fatalf("%s: the plan is %+v", ddl, plan.Steps)
					}
					if interrupted > 0 {
						interrupt(t, cfg, plan, added+1)
					}
					initialise(t, cfg, opt)
					src := source(t, cfg)
					insert("new")
					insert("newer")
					list, err := src.List(t.Context(), core.Filter{})
					must(t, err)
					if len(list) != 4 {
						t.Fatalf("%d rows", len(list))
					}
					for i, r := range list {
						if age := time.Since(r.CreatedAt); i < 2 && !r.CreatedAt.IsZero() || i >= 2 && (age < -time.Minute || age > time.Minute) {
							t.Errorf("%s, %s: row %s was created at %v", ddl, existing, r.ID, r.CreatedAt)
						}
					}
					rows := pendingRows(t, src)
					if last := rows[len(rows)-1].Record; last.ID != "newer" || time.Since(last.CreatedAt) > time.Minute {
						t.Errorf("the last pending row is %+v", last)
					}
					if plan, err := mysql.Plan(t.Context(), cfg, mysql.InitOptions{}); err != nil || len(plan.Steps) > 0 {
						t.Errorf("a second plan: %+v, %v", plan, err)
					}
				}
			}
		}
	})
}

// Who says that there is no time of insertion gets none, and one of the application's own stays as it is.
func TestATimeOfInsertionIsNotForced(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for created, ddl := range map[*string]string{nil: "", columns("c", "at")["c"]: ", at datetime(6) NULL"} {
			cfg := srv.config(t)
			cfg.Columns = map[string]*string{"created": created}
			srv.execute(t, cfg, `CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob`+ddl+`) ENGINE=InnoDB`)
			initialise(t, cfg, mysql.InitOptions{})
			srv.execute(t, cfg, `INSERT INTO outbox (id) VALUES ('a')`)
			if rows := pendingRows(t, source(t, cfg)); len(rows) != 1 || !rows[0].Record.CreatedAt.IsZero() {
				t.Errorf("%+v", rows)
			}
		}
	})
}
