package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// right is one that a daemon needs: on a table, or on one of its columns.
type right struct{ table, column, verb string }

// needed are the rights that a daemon's role must have. Those on the outbox table are by column, since a role may well have no
// more than these.
func (s *schema) needed() []right {
	table := s.table.quoted()
	list := []right{}
	c := &s.cols
	reads := []string{c.Order, c.ID, c.Key, c.Route, c.Type, c.Payload, c.Headers, c.Created, c.State, c.Deliveries, c.Attempts, c.Crashes,
		c.AvailableAt, c.FailingSince, c.LastError, c.PublishedAt}
	if s.byColumn {
		reads = append(reads, c.Partition)
	}
	for _, h := range s.extra {
		reads = append(reads, h.Column)
	}
	for _, name := range reads {
		if name != "" {
			list = append(list, right{table, name, "SELECT"})
		}
	}
	for _, name := range []string{c.State, c.AvailableAt, c.Attempts, c.Deliveries, c.Crashes, c.LastError, c.FailingSince, c.PublishedAt} {
		list = append(list, right{table, name, "UPDATE"})
	}
	if !s.keep {
		list = append(list, right{table, "", "DELETE"})
	}
	for _, t := range []struct{ name, verbs string }{
		{"outbox", "SELECT UPDATE"}, {"lease", "SELECT UPDATE"}, {"worker", "SELECT INSERT UPDATE DELETE"}, {"inflight", "SELECT INSERT UPDATE DELETE"},
		{"attempt", "SELECT INSERT DELETE"}, {"revision", "SELECT INSERT DELETE"}, {"ledger", "SELECT INSERT UPDATE DELETE"},
		{"receipt", "SELECT INSERT UPDATE DELETE"}, {"cleaned", "SELECT INSERT UPDATE DELETE"},
	} {
		for verb := range strings.FieldsSeq(t.verbs) {
			list = append(list, right{s.beside(t.name), "", verb})
		}
	}
	return list
}

// rights asks the server which of the needed rights the role has not.
func (d *doctor) rights(ctx context.Context) error {
	s := d.src.s
	var tables, columns, verbs []string
	for _, r := range s.needed() {
		tables, columns, verbs = append(tables, r.table), append(columns, r.column), append(verbs, r.verb)
	}
	rows, err := d.src.work.Query(ctx, `SELECT t, c, v FROM unnest($1::text[], $2::text[], $3::text[]) n (t, c, v)
		WHERE NOT CASE WHEN c = '' THEN has_table_privilege(t, v) ELSE has_column_privilege(t, c, v) END`, tables, columns, verbs)
	if err != nil {
		return err
	}
	var lost []right
	var r right
	if _, err := pgx.ForEachRow(rows, []any{&r.table, &r.column, &r.verb}, func() error {
		lost = append(lost, r)
		return nil
	}); err != nil {
		return err
	}
	var role string
	var deletes, filtered bool
	if err := d.src.work.QueryRow(ctx, `SELECT current_user::text, has_table_privilege($1::text, 'DELETE'), row_security_active($1::text)`,
		s.table.quoted()).Scan(&role, &deletes, &filtered); err != nil {
		return err
	}
	if filtered {
		d.Warn("rights", fmt.Sprintf("row security is on for role %s: rows that its policies hide are never sent", role), "ALTER ROLE "+quote(role)+" BYPASSRLS, or a policy that lets the role see and change every row")
	}
	switch {
	case lost != nil:
		d.Fault("rights", fmt.Sprintf("role %s lacks %s", role, inWords(lost)), grants(lost, role))
	case s.keep && !deletes:
		d.Warn("rights", fmt.Sprintf("role %s has all that sending needs, and not DELETE on %s: rows that are kept are never cleaned up", role, s.table), "GRANT DELETE ON "+s.table.quoted()+" TO "+quote(role))
	default:
		d.Fine("rights", "role %s may do all that a daemon does", role)
	}
	return nil
}

// inserts looks for roles that may insert into the table and fail at it, for want of the sequence that init added.
func (d *doctor) inserts(ctx context.Context) error {
	s := d.src.s
	if !s.bySequence {
		return nil
	}
	var fail []string
	err := d.src.work.QueryRow(ctx, `SELECT array(SELECT quote_ident(rolname) FROM pg_roles
		WHERE has_any_column_privilege(oid, $1::text, 'INSERT') AND NOT has_sequence_privilege(oid, $2::text, 'USAGE, UPDATE') ORDER BY 1 LIMIT 10)`,
		s.table.quoted(), s.sequence()).Scan(&fail)
	if err != nil {
		return err
	}
	if len(fail) > 0 {
		d.Warn("inserts", fmt.Sprintf("these may insert into %s, and cannot: they lack USAGE on sequence %s: %s", s.table, s.sequence(), strings.Join(fail, ", ")),
			"GRANT USAGE ON SEQUENCE "+s.sequence()+" TO "+strings.Join(fail, ", "))
		return nil
	}
	d.Fine("inserts", "who may insert into %s may take numbers for the rows too", s.table)
	return nil
}

// byTable gathers the verbs that a table lacks, in their order; columns are not told apart.
func byTable(lost []right) (tables []string, verbs map[string][]string) {
	verbs = map[string][]string{}
	for _, r := range lost {
		if !slices.Contains(tables, r.table) {
			tables = append(tables, r.table)
		}
		if !slices.Contains(verbs[r.table], r.verb) {
			verbs[r.table] = append(verbs[r.table], r.verb)
		}
	}
	return tables, verbs
}

func inWords(lost []right) string {
	tables, verbs := byTable(lost)
	var list []string
	for _, t := range tables {
		list = append(list, strings.Join(verbs[t], ", ")+" on "+t)
	}
	return strings.Join(list, "; ")
}

func grants(lost []right, role string) string {
	tables, verbs := byTable(lost)
	var list []string
	for _, t := range tables {
		list = append(list, "GRANT "+strings.Join(verbs[t], ", ")+" ON "+t+" TO "+quote(role))
	}
	return strings.Join(list, "; ")
}

// longOnes are transactions that have been open for some time and matter: those that have written, in any database, since
// numbers of transactions are the server's, and those that hold a snapshot in this one.
const longOnes = `SELECT who, writes, (seconds * 1000000)::bigint FROM (
		SELECT format('process %s, user %s, database %s, application %s, %s', pid, usename, datname, quote_ident(application_name), state) AS who,
			backend_xid IS NOT NULL AS writes, extract(epoch FROM clock_timestamp() - xact_start) AS seconds
		FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
			AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL AND datname = current_database())
		UNION ALL SELECT format('prepared transaction %s, user %s, database %s', quote_literal(gid), owner, database), true,
			extract(epoch FROM clock_timestamp() - prepared) FROM pg_prepared_xacts
	) t WHERE seconds * 1000000 > $1::bigint ORDER BY seconds DESC LIMIT 10`

// transactions looks for those that have been open for long.
func (d *doctor) transactions(ctx context.Context) error {
	rows, err := d.src.work.Query(ctx, longOnes, d.transaction.Microseconds())
	if err != nil {
		return err
	}
	var who string
	var writes bool
	var since int64
	found := false
	if _, err := pgx.ForEachRow(rows, []any{&who, &writes, &since}, func() error {
		found = true
		age := microseconds(since).Round(time.Second)
		if writes {
			d.Warn("transactions", fmt.Sprintf("a transaction that has written is open since %v: %s. Rows that it inserts late are found, but fetches must go on looking for them", age, who),
				"end it, and set transaction or idle_in_transaction_session_timeout for its role")
			return nil
		}
		d.Warn("transactions", fmt.Sprintf("a snapshot is held since %v: %s. Until it ends, vacuum removes nothing of what is published meanwhile", age, who),
			"end it, or run long reports on a standby without hot_standby_feedback")
		return nil
	}); err != nil {
		return err
	}
	var sees bool
	if err := d.src.work.QueryRow(ctx, `SELECT pg_has_role('pg_read_all_stats', 'USAGE')`).Scan(&sees); err != nil {
		return err
	}
	switch {
	case found:
	case sees:
		d.Fine("transactions", "none is open for longer than %v", d.transaction)
	default:
		d.Fine("transactions", "none of this role's is open for longer than %v; to see those of others too: GRANT pg_read_all_stats", d.transaction)
	}
	return nil
}

// deadRows looks whether vacuum keeps up.
func (d *doctor) deadRows(ctx context.Context) error {
	var live, dead int64
	err := d.src.work.QueryRow(ctx, `SELECT coalesce(sum(n_live_tup), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables
		WHERE relid = to_regclass($1::text)`, d.src.s.table.quoted()).Scan(&live, &dead)
	if err != nil {
		return err
	}
	if dead > d.dead && dead > live {
		d.Warn("dead rows", fmt.Sprintf("table %s has about %d dead rows beside %d live ones: vacuum does not keep up", d.src.s.table, dead, live),
			"look for what holds an old snapshot (transactions, replication slots), and set autovacuum_vacuum_scale_factor = 0.01 for the table")
		return nil
	}
	d.Fine("dead rows", "about %d beside %d live ones", dead, live)
	return nil
}
