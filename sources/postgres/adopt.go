package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// adopt adds the relay's columns to a table that is there.
func (s *schema) adopt(old oldRows, opt InitOptions, add func(why, sql string)) error {
	var added, there []relayColumn
	foreign := func(c relayColumn) error {
		return fmt.Errorf("table %s has a column %s with a meaning of its own: map columns.%s to another name", s.table, c.name, s.cols.ConfigName(c.name))
	}
	for _, c := range s.relayColumns() {
		is, found := s.found[c.name]
		switch {
		case !found:
			added = append(added, c)
		case is.kind != c.kind || c.byDefault != "" && (!is.notNull || strings.TrimSuffix(is.byDefault, "::text") != c.byDefault):
			return foreign(c)
		default:
			there = append(there, c)
		}
	}
	apart := func(c relayColumn) bool { return c.name == s.cols.Order || c.name == s.cols.Created }
	there, missing := slices.DeleteFunc(there, apart), slices.DeleteFunc(slices.Clone(added), apart)
	if s.version == 0 && len(there) > 0 && len(missing) > 0 {
		// Ours come all at once. What is in such a column may be anything: published_at may be what tells which rows were sent.
		return foreign(there[0])
	}
	stateless := slices.ContainsFunc(added, func(c relayColumn) bool { return c.name == s.cols.State })
	answer, err := layout.Existing(s.table.String(), opt.Existing, old.unsent != "", stateless && old.count > 0)
	if err != nil {
		return err
	}
	if len(added) > 0 {
		why := "the relay's own columns; no row is rewritten. Rows inserted from now on are pending"
		if stateless && old.count > 0 {
			why += map[bool]string{true: ", those that are there are taken as sent and get no " + s.cols.Order, false: ", those that are there as well"}[answer != core.Pending]
		}
		if slices.ContainsFunc(added, func(c relayColumn) bool { return c.name == s.cols.Order }) {
			why += ". Whoever may insert goes on: each role may use the sequence"
		}
		add(why, briefly(s.addColumns(added, old, stateless && answer != core.Pending)...))
	}
	if !s.registered {
		s.settleOldRows(old, answer, add) // also when there seem to be none: applications may be at work
	}
	return nil
}

// addColumns adds columns without rewriting the table: a default that is a constant is noted once for all rows that are
// there, and what new rows get is set afterwards. All of it happens at one moment.
//
// A default that takes a number needs a right to its sequence, which no insert needed before. Everybody gets it, since who
// may insert can change at any time, and is not to fail for that. All that it gives away is how many numbers were taken;
// whoever takes some leaves a gap, which is harmless, and nobody can set the sequence back by it.
func (s *schema) addColumns(added []relayColumn, old oldRows, sent bool) []string {
	t := s.table.quoted()
	var columns, after []string
	for _, c := range added {
		def := c.definition()
		switch name := quote(c.name); c.name {
		case s.cols.State:
			if sent {
				def = strings.Replace(def, "'pending'", "'published'", 1)
				after = append(after, "ALTER COLUMN "+name+" SET DEFAULT 'pending'")
			}
		case s.cols.PublishedAt:
			if sent {
				def += " DEFAULT now()"
				after = append(after, "ALTER COLUMN "+name+" DROP DEFAULT")
			}
		case s.cols.Order:
			after = append(after, "ALTER COLUMN "+name+" SET DEFAULT nextval("+literal(s.sequence())+")")
		case s.cols.Created:
			after = append(after, "ALTER COLUMN "+name+" SET DEFAULT clock_timestamp()")
		}
		columns = append(columns, "ADD COLUMN "+def)
	}
	statements := []string{"ALTER TABLE " + t + " " + strings.Join(columns, ", ")}
	if s.bySequence && strings.Contains(strings.Join(after, ""), "nextval") {
		statements = append(statements, fmt.Sprintf("CREATE SEQUENCE IF NOT EXISTS %s START WITH %d OWNED BY %s.%s",
			s.sequence(), firstNew(old.count), t, quote(s.cols.Order)),
			"GRANT USAGE ON SEQUENCE "+s.sequence()+" TO PUBLIC")
	}
	if after != nil {
		statements = append(statements, "ALTER TABLE "+t+" "+strings.Join(after, ", "))
	}
	return statements
}

func (s *schema) sequence() string { return quote(s.table.schema) + "." + quote(s.sequenceName()) }

// firstNew is the number of the first new row, above those that the old rows get: they are numbered when it is known
// which they are, and there may be some more by then.
func firstNew(count int64) int64 {
	n := int64(1000)
	for n <= 10*count {
		n *= 10
	}
	return n + 1
}

// settleOldRows makes pending, and numbers, the rows that are to be sent. It goes on where it was interrupted.
func (s *schema) settleOldRows(old oldRows, answer core.State, add func(why, sql string)) {
	t, order, state := s.table.quoted(), quote(s.cols.Order), quote(s.cols.State)
	set, which, why := "", "", "the rows that are there"
	switch answer {
	case core.Published:
		return
	case "":
		set = state + " = 'pending', " + quote(s.cols.PublishedAt) + " = NULL"
		which = state + " = 'published' AND " + old.unsent
		why = "the rows whose column published says that they have not been sent"
	case core.Pending:
		which = state + " = 'pending'"
	}
	if !s.bySequence {
		if set != "" {
			add(why+" are pending", "UPDATE "+t+" SET "+set+" WHERE "+which)
		}
		return
	}
	by, how := "ctid", "as they lie in the table, which is the order of insertion unless rows were updated or deleted"
	if c := s.cols.Created; c != "" && !s.fillCreated {
		by, how = quote(c)+", ctid", "by "+c
	} else if numbered(s.found[s.cols.ID]) {
		by, how = quote(s.cols.ID), "by "+s.cols.ID
	}
	if set != "" {
		set = ", " + set
	}
	add(why+" get their "+s.cols.Order+" below those of new rows, "+how+"; a thousand rows a transaction", fmt.Sprintf(numberRows,
		numberLock, lockNotAvailable, order, t, order, literal(s.table.schema), literal(s.sequenceName()), t, order, which, by, t, order, set, order, which, numberLock))
}

// numberRows: lock, state; order, table, order, schema, sequence; table, order, which rows, sorted by what; table, order,
// more to set, order, which rows; lock. The server goes on with it when init is gone, and with it the lock that keeps other
// inits out; so it has one of its own, or the next init would give the same numbers to other rows at the same time.
const numberRows = `DO $connectd$
DECLARE
  connectd_n bigint;
  connectd_at tid;
  connectd_again boolean := true;
  connectd_told timestamp with time zone := clock_timestamp();
BEGIN
  IF NOT pg_try_advisory_lock(%d) THEN
    RAISE EXCEPTION 'rows are being numbered' USING ERRCODE = '%s';
  END IF;
  SELECT coalesce(max(%s), 0) INTO connectd_n FROM %s WHERE %s < (SELECT start_value FROM pg_sequences WHERE schemaname = %s AND sequencename = %s);
  WHILE connectd_again LOOP
    connectd_again := false;
    FOR connectd_at IN SELECT ctid FROM %s WHERE %s IS NULL AND %s ORDER BY %s LOOP
      UPDATE %s SET %s = connectd_n + 1%s WHERE ctid = connectd_at AND %s IS NULL AND %s;
      IF FOUND THEN connectd_n := connectd_n + 1; ELSE connectd_again := true; END IF;
      IF connectd_n %% 1000 = 0 THEN COMMIT; END IF;
      IF clock_timestamp() > connectd_told + interval '2 seconds' THEN
        RAISE NOTICE 'connectd: numbers the rows that are there: %% so far', connectd_n;
        connectd_told := clock_timestamp();
      END IF;
    END LOOP;
    COMMIT;
  END LOOP;
  PERFORM pg_advisory_unlock(%d);
END $connectd$`
