package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
	"github.com/connectd/connectd/sources/mysql"
)

// article is the outbox table many services already have.
const article = `CREATE TABLE commands (command_id varchar(64) PRIMARY KEY, run_id varchar(64), kind varchar(64), payload text, published tinyint(1) NOT NULL DEFAULT 0) ENGINE=InnoDB`

func (srv server) articleConfig(t *testing.T) mysql.Config {
	t.Helper()
	return srv.articleTable(t, srv.config(t), "commands")
}

// articleTable is another such table in the same database.
func (srv server) articleTable(t *testing.T, cfg mysql.Config, name string) mysql.Config {
	t.Helper()
	cfg.Table, cfg.Columns = name, columns("id", "command_id", "key", "run_id", "type", "kind")
	srv.execute(t, cfg, strings.Replace(article, "commands", name, 1))
	return cfg
}

// pendingIDs reads all pending rows, in seq order within each partition.
func pendingIDs(t *testing.T, src *mysql.Source) []string {
	t.Helper()
	var ids []string
	for _, r := range pendingRows(t, src) {
		ids = append(ids, r.Record.ID)
	}
	return ids
}

func pendingRows(t *testing.T, src *mysql.Source) []core.Row {
	t.Helper()
	partitions, err := src.Partitions(t.Context())
	must(t, err)
	var rows []core.Row
	for part := range partitions {
		page, err := src.Fetch(t.Context(), core.FetchRequest{Part: part, Limit: 10_000})
		must(t, err)
		rows = append(rows, page.Rows...)
	}
	return rows
}

// inOrder sorts rows of all partitions by seq and gives their ids.
func inOrder(rows []core.Row) string {
	slices.SortFunc(rows, func(a, b core.Row) int { return int(a.Record.Seq - b.Record.Seq) })
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.Record.ID)
	}
	return strings.Join(ids, " ")
}

func TestOpenNamesWhatIsMissing(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		missing := func(what string) {
			t.Helper()
			_, err := mysql.Open(t.Context(), cfg)
			if !errors.Is(err, core.ErrNotInitialised) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "connectd init") {
				t.Errorf("want an error about %s, got %v", what, err)
			}
		}
		missing("table outbox")
		initialise(t, cfg, mysql.InitOptions{})
		source(t, cfg)
		srv.execute(t, cfg, `DROP INDEX connectd_pending ON outbox`)
		missing("index connectd_pending")
		initialise(t, cfg, mysql.InitOptions{})
		srv.execute(t, cfg, `DROP TABLE connectd_attempt`)
		missing("table connectd_attempt")
		initialise(t, cfg, mysql.InitOptions{})
		if plan, err := mysql.Plan(t.Context(), cfg, mysql.InitOptions{}); err != nil || len(plan.Steps) != 0 {
			t.Errorf("when all is there: %+v, %v", plan, err)
		}
		source(t, cfg)
	})
}

func TestTwoInitsAtOnce(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.articleConfig(t)
		srv.execute(t, cfg, `INSERT INTO commands (command_id, run_id, payload) VALUES ('a', 'k', 'x'), ('b', 'k', 'x')`)
		opt := mysql.InitOptions{Existing: "pending", Partitions: 4}
		plan, err := mysql.Plan(t.Context(), cfg, opt)
		must(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := mysql.Apply(t.Context(), cfg, opt, plan); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		src := source(t, cfg)
		if n, err := src.Partitions(t.Context()); err != nil || n != 4 {
			t.Errorf("%d partitions, %v", n, err)
		}
		if leases, err := src.Leases(t.Context()); err != nil || len(leases) != 4 {
			t.Errorf("%d leases, %v", len(leases), err)
		}
		if ids := pendingIDs(t, src); !slices.Equal(ids, []string{"a", "b"}) {
			t.Errorf("rows %q", ids)
		}
		if _, err := mysql.Plan(t.Context(), cfg, mysql.InitOptions{Partitions: 5}); err == nil || !strings.Contains(err.Error(), "chosen once") {
			t.Errorf("another number of partitions: %v", err)
		}
	})
}

// Each of Debezium's ways to write a uuid, with live rows, adopted while the application goes on.
func TestDebeziumTableIsAdopted(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		kinds := map[string]string{"char(36)": "uuid()", "char(36) CHARACTER SET ascii": "uuid()", "varchar(255)": "uuid()", "binary(16)": "unhex(replace(uuid(), '-', ''))"}
		if srv.name == "MariaDB" {
			kinds["uuid"] = "uuid()"
		}
		for kind, value := range kinds {
			t.Run(kind, func(t *testing.T) {
				cfg := srv.config(t)
				cfg.Table, cfg.Columns = "outbox_event", columns("created", "ts")
				srv.execute(t, cfg, `CREATE TABLE outbox_event (id `+kind+` NOT NULL PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
					type varchar(255) NOT NULL, payload json, tracingspancontext varchar(256), ts timestamp(6) NOT NULL DEFAULT current_timestamp(6)) ENGINE=InnoDB`)
				insert := `INSERT INTO outbox_event (id, aggregatetype, aggregateid, type, payload, tracingspancontext) VALUES (` + value + `, 'order', ?, 'created', ?, 'span')`
				db := open(t, cfg.DSN)
				add := func(n int) {
					if _, err := db.Exec(insert, fmt.Sprint("k", n%7), fmt.Sprintf(`{"n": %d}`, n)); err != nil {
						t.Error(err)
					}
				}
				for n := range 200 {
					add(n)
				}
				opt := mysql.InitOptions{Existing: "pending"}
				if _, err := mysql.Plan(t.Context(), cfg, mysql.InitOptions{}); !errors.As(err, new(*layout.ExistingRowsError)) {
					t.Errorf("without an answer: %v", err)
				}
				total := 200
				var ready atomic.Bool
				var wg sync.WaitGroup
				wg.Go(func() {
					for ; !ready.Load(); total++ {
						add(total)
					}
				})
				if err := initWith(t.Context(), cfg, opt); err != nil {
					t.Error(err)
				}
				ready.Store(true)
				wg.Wait()
				cfg.HeaderColumns = []layout.HeaderColumn{{Header: "trace", Column: "tracingspancontext"}}
				src := source(t, cfg)
				rows := pendingRows(t, src)
				slices.SortFunc(rows, func(a, b core.Row) int { return int(a.Record.Seq - b.Record.Seq) })
				if len(rows) != total {
					t.Fatalf("%d rows of %d", len(rows), total)
				}
				for n, r := range rows {
					if got := string(r.Record.Payload); got != fmt.Sprintf(`{"n": %d}`, n) || r.Record.Key != fmt.Sprint("k", n%7) || len(r.Record.ID) != 36 || r.Invalid != "" {
						t.Fatalf("row %d: %+v", n, r)
					}
					if span, _ := r.Record.Header("trace"); span != "span" {
						t.Fatalf("headers of row %d: %v", n, r.Record.Headers)
					}
				}
				// It is found by its id as people write it, and settled.
				id := rows[7].Record.ID
				if info, _, err := src.Show(t.Context(), id); err != nil || info.ID != id {
					t.Errorf("show %s: %+v, %v", id, info, err)
				}
				for _, nobody := range []string{"nobody", "", strings.Repeat("z", 36), id[:35]} {
					if _, _, err := src.Show(t.Context(), nobody); !errors.Is(err, core.ErrNoRow) {
						t.Errorf("show %q: %v", nobody, err)
					}
				}
				publishAll(t, src)
				if ids := pendingIDs(t, src); len(ids) != 0 {
					t.Errorf("%d rows are still pending", len(ids))
				}
			})
		}
	})
}

// publishAll takes every lease and settles all rows as published.
func publishAll(t *testing.T, src *mysql.Source) {
	t.Helper()
	partitions, err := src.Partitions(t.Context())
	must(t, err)
	taken, err := src.Acquire(t.Context(), "publisher", partitions, longLease, false)
	must(t, err)
	for _, a := range taken {
		page, err := src.Fetch(t.Context(), core.FetchRequest{Part: a.Lease.Part, Limit: 10_000})
		must(t, err)
		c := core.Change{Lease: a.Lease}
		for _, r := range page.Rows {
			c.Settle = append(c.Settle, core.Settlement{Seq: r.Record.Seq, Deliveries: r.Deliveries, State: core.Published})
		}
		must(t, src.Step(t.Context(), "publisher", c))
		must(t, src.Release(t.Context(), "publisher", a.Lease))
	}
}

func TestArticleTableIsAdopted(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for existing, want := range map[string]string{"": "b d", "pending": "a b c d", "published": ""} {
			t.Run(existing, func(t *testing.T) {
				cfg := srv.articleConfig(t)
				srv.execute(t, cfg, `INSERT INTO commands (command_id, run_id, payload, published) VALUES ('c', 'k', 'x', 1), ('a', 'k', 'x', 1), ('d', NULL, 'x', 0), ('b', NULL, 'x', 0)`)
				initialise(t, cfg, mysql.InitOptions{Existing: existing})
				src := source(t, cfg)
				if got := inOrder(pendingRows(t, src)); got != want {
					t.Errorf("pending are %q, want %q", got, want)
				}
				list, err := src.List(t.Context(), core.Filter{State: core.Published})
				must(t, err)
				for _, r := range list {
					if r.PublishedAt.IsZero() {
						t.Errorf("row %s was published at no time", r.ID)
					}
				}
				srv.execute(t, cfg, `INSERT INTO commands (command_id, run_id, payload) VALUES ('new', 'k', 'x')`)
				if got := strings.TrimSpace(want + " new"); inOrder(pendingRows(t, src)) != got {
					t.Errorf("pending are %q, want %q", inOrder(pendingRows(t, src)), got)
				}
			})
		}
		cfg := srv.articleConfig(t)
		srv.execute(t, cfg, `ALTER TABLE commands MODIFY published int NULL`, `INSERT INTO commands (command_id, published) VALUES ('a', 2), ('b', 1)`)
		if _, err := mysql.Plan(t.Context(), cfg, mysql.InitOptions{}); !errors.As(err, new(*layout.ExistingRowsError)) {
			t.Errorf("a column published with other values: %v", err)
		}
		srv.execute(t, cfg, `UPDATE commands SET published = NULL WHERE command_id = 'a'`)
		initialise(t, cfg, mysql.InitOptions{})
		if got := inOrder(pendingRows(t, source(t, cfg))); got != "a" {
			t.Errorf("pending are %q", got)
		}
	})
}

// An init that dies between any two steps can be repeated, and rows that are inserted meanwhile are sent.
func TestInterruptedInit(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		one := srv.config(t)
		initialise(t, one, mysql.InitOptions{}) // the relay's own tables are there
		for existing, want := range map[string]string{"": "a new", "pending": "a b new", "published": "new"} {
			for steps := 1; ; steps++ {
				name := fmt.Sprint("commands", databases.Add(1))
				cfg := srv.articleTable(t, one, name)
				srv.execute(t, cfg, `ALTER TABLE `+name+` ADD COLUMN created_at datetime(6) NULL`,
					`INSERT INTO `+name+` (command_id, payload, published, created_at) VALUES ('b', 'x', 1, '2026-01-02'), ('a', 'x', 0, '2026-01-01')`)
				opt := mysql.InitOptions{Existing: existing}
				plan, err := mysql.Plan(t.Context(), cfg, opt)
				must(t, err)
				if steps >= len(plan.Steps) {
					break
				}
				interrupt(t, cfg, plan, steps)
				stateful := steps > slices.IndexFunc(plan.Steps, func(s core.PlanStep) bool { return strings.Contains(s.SQL, "'published'") })
				if !stateful && existing == "published" {
					continue // what is inserted before the answer is carried out is what the answer is about
				}
				srv.execute(t, cfg, `INSERT INTO `+name+` (command_id, payload, created_at) VALUES ('new', 'x', '2026-01-03')`)
				if _, err := mysql.Open(t.Context(), cfg); !errors.Is(err, core.ErrNotInitialised) {
					t.Errorf("opened after %d steps: %v", steps, err)
				}
				initialise(t, cfg, opt)
				if got := inOrder(pendingRows(t, source(t, cfg))); got != want {
					t.Errorf("%q after %d steps of %d, the last %s: pending are %q, want %q", existing, steps, len(plan.Steps), plan.Steps[steps-1].SQL, got, want)
				}
			}
		}
	})
}

// Reading and changing a large table takes longer than a statement may where the server has a limit.
func TestInitTakesTheTimeItTakes(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.articleTable(t, srv.config(t), "commands")
		lock, err := open(t, cfg.DSN).Conn(context.Background())
		must(t, err)
		defer lock.Close()
		_, err = lock.ExecContext(t.Context(), `LOCK TABLES commands WRITE`)
		must(t, err)
		limited := cfg
		limited.DSN = withOptions(cfg.DSN, map[string]string{"MySQL": "max_execution_time=50", "MariaDB": "max_statement_time=0.05"}[srv.name])
		done := make(chan error, 1)
		go func() { done <- initWith(context.Background(), limited, mysql.InitOptions{}) }()
		db := open(t, cfg.DSN)
		until(t, "a statement to take longer", func() bool {
			var long bool
			must(t, db.QueryRow(`SELECT EXISTS (SELECT 1 FROM information_schema.processlist WHERE db = database() AND id <> connection_id() AND time >= 1 AND info LIKE '%commands%')`).Scan(&long))
			return long
		})
		_, err = lock.ExecContext(t.Context(), `UNLOCK TABLES`)
		must(t, err)
		must(t, <-done)
	})
}

// interrupt carries out some steps of a plan, and loses the connection.
func interrupt(t *testing.T, cfg mysql.Config, plan core.Plan, steps int) {
	t.Helper()
	db := open(t, cfg.DSN)
	conn, err := db.Conn(context.Background())
	must(t, err)
	for _, step := range plan.Steps[:steps] {
		if _, err := conn.ExecContext(context.Background(), step.SQL); err != nil {
			t.Fatalf("%s: %v", step.SQL, err)
		}
	}
	conn.Close()
	db.Close()
}

func TestTablesThatCannotBeAdopted(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		for name, c := range map[string]struct{ ddl, want string }{
			"an id without a constraint":     {`CREATE TABLE outbox (seq bigint AUTO_INCREMENT PRIMARY KEY, id varchar(64) NOT NULL, aggregateid text, payload blob) ENGINE=InnoDB`, "no unique constraint"},
			"an id with a constraint on two": {`CREATE TABLE outbox (id varchar(64) NOT NULL, aggregateid varchar(64), payload blob, UNIQUE (id, aggregateid)) ENGINE=InnoDB`, "no unique constraint"},
			"an id unique by its beginning":  {`CREATE TABLE outbox (id varchar(64) NOT NULL, aggregateid varchar(64), payload blob, UNIQUE (id(8))) ENGINE=InnoDB`, "no unique constraint"},
			"no key":                         {`CREATE TABLE outbox (id varchar(64) PRIMARY KEY, payload blob) ENGINE=InnoDB`, "map columns.key"},
			"no payload":                     {`CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid text) ENGINE=InnoDB`, "no column payload"},
			"no transactions":                {`CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob) ENGINE=MyISAM`, "MyISAM"},
			"a view":                         {`CREATE VIEW outbox AS SELECT 1 id, 2 aggregateid, 3 payload`, "view"},
			"another state":                  {`CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob, state int) ENGINE=InnoDB`, "columns.state"},
			"other attempts":                 {`CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob, attempts int NOT NULL DEFAULT 0) ENGINE=InnoDB`, "columns.attempts"},
			"attempts that may be NULL":      {`CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob, attempts int DEFAULT 0) ENGINE=InnoDB`, "columns.attempts"},
			"a time of publication":          {`CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob, published_at datetime(6)) ENGINE=InnoDB`, "columns.published_at"},
			"another part":                   {`CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob, part int) ENGINE=InnoDB`, "columns.partition"},
			"another seq":                    {`CREATE TABLE outbox (id varchar(64) PRIMARY KEY, aggregateid varchar(64), payload blob, seq int) ENGINE=InnoDB`, "not AUTO_INCREMENT"},
			"an id of another kind":          {`CREATE TABLE outbox (id double PRIMARY KEY, aggregateid varchar(64), payload blob) ENGINE=InnoDB`, "cannot be an id"},
		} {
			t.Run(name, func(t *testing.T) {
				cfg := srv.config(t)
				srv.execute(t, cfg, c.ddl)
				if _, err := mysql.Plan(t.Context(), cfg, mysql.InitOptions{Existing: "pending"}); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want an error about %s", err, c.want)
				}
			})
		}
	})
}

// A table that numbers its rows already keeps its numbers; nothing is rebuilt. Integers are ids, too.
func TestTableWithNumbersIsAdopted(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		cfg.Columns = map[string]*string{"key": nil, "payload": columns("p", "body")["p"]}
		srv.execute(t, cfg, `CREATE TABLE outbox (id int unsigned AUTO_INCREMENT PRIMARY KEY, body text CHARACTER SET latin1) ENGINE=InnoDB`, `INSERT INTO outbox (body) VALUES ('é'), ('x')`)
		plan, err := mysql.Plan(t.Context(), cfg, mysql.InitOptions{Existing: "pending"})
		must(t, err)
		for _, step := range plan.Steps {
			if strings.Contains(step.SQL, "LOCK=SHARED") || strings.Contains(step.SQL, "LOCK TABLES") {
				t.Errorf("a step keeps applications waiting: %s", step.SQL)
			}
		}
		initialise(t, cfg, mysql.InitOptions{Existing: "pending"})
		src := source(t, cfg)
		rows := pendingRows(t, src)
		if inOrder(rows) != "1 2" || string(rows[0].Record.Payload) != "é" || rows[0].Record.Seq != 1 || rows[0].Record.Keyed {
			t.Errorf("got %+v", rows)
		}
		if info, _, err := src.Show(t.Context(), "2"); err != nil || info.Seq != 2 {
			t.Errorf("show 2: %+v, %v", info, err)
		}
		if _, _, err := src.Show(t.Context(), "2x"); !errors.Is(err, core.ErrNoRow) {
			t.Errorf("show 2x: %v", err)
		}
		publishAll(t, src)
	})
}

func TestANewerSchemaIsRefused(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{})
		srv.execute(t, cfg, `UPDATE connectd_outbox SET version = 2`)
		src := source(t, cfg) // a neighbouring version is at work beside us
		beat := func() error {
			if _, err := src.Heartbeat(t.Context(), "one", nil, time.Minute); err != nil {
				t.Fatal(err)
			}
			return src.Moved()
		}
		if err := beat(); err != nil {
			t.Error(err)
		}
		srv.execute(t, cfg, `UPDATE connectd_outbox SET version = 3`)
		if err := beat(); err == nil || !strings.Contains(err.Error(), "upgrade connectd") {
			t.Errorf("a heartbeat finds: %v", err)
		}
		if _, err := mysql.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "upgrade connectd") {
			t.Errorf("opened: %v", err)
		}
	})
}

// The mapping decides the partition of a row, so it cannot change afterwards.
func TestAnotherMappingIsRefused(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		initialise(t, cfg, mysql.InitOptions{})
		cfg.Columns = columns("key", "type", "type", "aggregateid")
		if _, err := mysql.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "map columns.id and columns.key as they were") {
			t.Errorf("opened: %v", err)
		}
	})
}

// A table in another database than the DSN's, whose name has a full stop. Its lease tables are beside it.
func TestATableOfAnotherDatabase(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		there, cfg := srv.config(t), srv.config(t)
		place := there.DSN[strings.LastIndexByte(there.DSN, '/')+1:]
		place, _, _ = strings.Cut(place, "?")
		cfg.Table = place + ".`crm.outbox`"
		initialise(t, cfg, mysql.InitOptions{})
		srv.execute(t, there, "INSERT INTO `crm.outbox` (id, payload) VALUES ('a', 'x')")
		src := source(t, cfg)
		if got := inOrder(pendingRows(t, src)); got != "a" {
			t.Errorf("pending are %q", got)
		}
		publishAll(t, src)
		srv.execute(t, there, "SELECT * FROM connectd_lease")
	})
}

// Nobody sits before a silent init: it says what it waits for.
func TestInitTellsWhatItWaitsFor(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		srv.execute(t, cfg, `CREATE TABLE outbox (id varchar(100) PRIMARY KEY, aggregateid varchar(100), payload blob) ENGINE=InnoDB`, `INSERT INTO outbox (id) VALUES ('a')`)
		user, err := open(t, cfg.DSN).BeginTx(context.Background(), nil)
		must(t, err)
		_, err = user.Exec(`UPDATE outbox SET aggregateid = 'x'`)
		must(t, err)
		var id int
		must(t, user.QueryRow(`SELECT CONNECTION_ID()`).Scan(&id))
		told := make(chan string, 100)
		opt := mysql.InitOptions{Existing: "pending", Tell: func(text string) { told <- text }}
		hear := func(words string) {
			t.Helper()
			for limit := time.After(60 * time.Second); ; {
				select {
				case text := <-told:
					t.Logf("told: %s", text)
					if strings.Contains(text, words) {
						return
					}
				case <-limit:
					t.Fatalf("nobody was told of %q", words)
				}
			}
		}
		plan, err := mysql.Plan(t.Context(), cfg, opt)
		must(t, err)
		done := make(chan error, 2)
		apply := func() { done <- mysql.Apply(t.Context(), cfg, opt, plan) }
		go apply()
		hear(fmt.Sprintf("waits for transactions that use the table (connection %d, since 20", id))
		go apply()
		hear("waits for another init to end (connection ")
		must(t, user.Rollback())
		must(t, <-done)
		must(t, <-done)
	})
}

// What an exchange of all numbers costs, and what to do instead, is said before it is done.
func TestThePlanSaysWhatAnExchangeOfNumbersCosts(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		cfg := srv.config(t)
		srv.execute(t, cfg, `CREATE TABLE outbox (id varchar(100) PRIMARY KEY, aggregateid varchar(100), payload blob, created_at datetime(6) NOT NULL DEFAULT current_timestamp(6)) ENGINE=InnoDB`,
			`INSERT INTO outbox (id) VALUES ('a')`)
		plan, err := mysql.Plan(t.Context(), cfg, mysql.InitOptions{Existing: "pending"})
		must(t, err)
		if !slices.ContainsFunc(plan.Steps, func(s core.PlanStep) bool {
			return s.SQL == "START TRANSACTION" && strings.Contains(s.Why, "40 s for 100,000 rows") && strings.Contains(s.Why, "stop here") && strings.Contains(s.Why, "add seq yourself")
		}) {
			t.Errorf("%+v", plan.Steps)
		}
	})
}
