package mysql

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// adopt makes an outbox table of a table that is there.
func (p *planner) adopt(opt InitOptions, unsent string) error {
	s := p.s
	var added, there []relayColumn
	foreign := func(c relayColumn) error {
		return fmt.Errorf("table %s has a column %s with a meaning of its own: map columns.%s to another name", s.table, c.name, s.cols.ConfigName(c.name))
	}
	for _, c := range s.relayColumns() {
		is, found := s.found[strings.ToLower(c.name)]
		computed := c.name == s.cols.Partition
		switch {
		case !found && !computed:
			added = append(added, c)
		case !found:
		case !sameKind(is.full, c.kind) || is.generated != computed || is.null && !computed && c.name != s.cols.LastError:
			return foreign(c)
		case !computed:
			there = append(there, c)
		}
	}
	if !s.ready && len(there) > 0 && len(added) > 0 {
		// Ours come all at once. What is in such a column may be anything: published_at may be what tells which rows were sent.
		return foreign(there[0])
	}
	state, found := s.found[strings.ToLower(s.cols.State)]
	unsettled := s.rows && (!found || !s.ready && state.byDefault == string(core.Published))
	answer, err := layout.Existing(s.table.String(), opt.Existing, unsent != "", unsettled)
	if err != nil {
		return err
	}
	if s.addOrder {
		p.addNumbers()
	}
	p.addCreated()
	p.addColumns(added, unsettled && answer != core.Pending)
	if found && state.byDefault == string(core.Published) {
		p.add("rows inserted from now on are pending", p.pendingByDefault())
	}
	if !s.ready && s.rows {
		p.settleOldRows(answer, unsent, found && unsettled)
		p.sortNumbers(answer)
	}
	if _, found := s.found[strings.ToLower(s.cols.Partition)]; !found {
		part := relayColumn{s.cols.Partition, "smallint", ""}
		p.add("a row's partition, computed when it is read: no row is touched",
			"ALTER TABLE "+s.table.quoted()+" ADD COLUMN "+s.definition(part, "")+" VIRTUAL, ALGORITHM=INSTANT")
	}
	if !s.indexes[pendingIndex] {
		p.add("what a fetch reads: a partition's pending rows in order, however many others are kept. Applications go on writing while it is made",
			"ALTER TABLE "+s.table.quoted()+" ADD "+s.pendingKey()+", ALGORITHM=INPLACE, LOCK=NONE")
	}
	return nil
}

// sameKind compares types; some servers show a width with integers: int(11).
func sameKind(is, want string) bool {
	if strings.HasPrefix(want, "int") || strings.HasPrefix(want, "smallint") {
		is, _, _ = strings.Cut(is, "(")
	}
	return is == want
}

// addColumns adds columns at once: the server notes a default for all rows that are there and touches none. Where those
// rows have been sent, that default is published, and must be so for no row that is inserted later; hence the lock.
func (p *planner) addColumns(added []relayColumn, sent bool) {
	if len(added) == 0 {
		return
	}
	s := p.s
	sent = sent && slices.ContainsFunc(added, func(c relayColumn) bool { return c.name == s.cols.State })
	var defs []string
	for _, c := range added {
		byDefault := c.byDefault
		switch {
		case sent && c.name == s.cols.State:
			byDefault = string(core.Published)
		case sent && c.name == s.cols.PublishedAt:
			byDefault = time.Now().UTC().Format("2006-01-02 00:00:00")
		}
		defs = append(defs, "ADD COLUMN "+s.definition(c, byDefault))
	}
	alter := "ALTER TABLE " + s.table.quoted() + " " + strings.Join(defs, ", ") + ", ALGORITHM=INSTANT"
	if !sent {
		p.add("the relay's own columns; no row is touched. All rows are pending", alter)
		return
	}
	p.add("nobody else may write to the table during the next three steps, which are short. It waits for transactions that use the table, and is tried again when that takes long",
		"LOCK TABLES "+s.table.quoted()+" WRITE, "+s.own("outbox")+" WRITE")
	p.add("notes which rows are there", fmt.Sprintf("UPDATE %s SET adopted = (SELECT COALESCE(MAX(%s), 0) FROM %s) WHERE tbl = %s",
		s.own("outbox"), quote(s.cols.Order), s.table.quoted(), literal(s.table.name)))
	p.add("the relay's own columns; no row is touched. Rows that are there are taken as sent, today", alter)
	p.add("rows inserted from now on are pending", p.pendingByDefault())
	p.add("others may write again", "UNLOCK TABLES")
}

func (p *planner) pendingByDefault() string {
	c := &p.s.cols
	return fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT 'pending', ALTER COLUMN %s SET DEFAULT '%s', ALGORITHM=INSTANT",
		p.s.table.quoted(), quote(c.State), quote(c.PublishedAt), epoch)
}

// settleOldRows makes pending the rows that are to be sent. interrupted: an earlier init took them all as sent, and those
// that were inserted since as well.
func (p *planner) settleOldRows(answer core.State, unsent string, interrupted bool) {
	c := &p.s.cols
	settle := func(why, which string) {
		p.add(why, fmt.Sprintf("UPDATE %s SET %s = 'pending', %s = '%s' WHERE %s = 'published' AND %s = 0%s", p.s.table.quoted(),
			quote(c.State), quote(c.PublishedAt), epoch, quote(c.State), quote(c.Deliveries), which))
	}
	if interrupted && answer == core.Pending {
		settle("the rows that are there have not been sent", "")
		return
	}
	if interrupted {
		settle("an earlier init was interrupted: rows that were inserted since have not been sent", fmt.Sprintf(
			" AND %s > (SELECT adopted FROM %s WHERE tbl = %s)", quote(c.Order), p.s.own("outbox"), literal(p.s.table.name)))
	}
	if answer == "" {
		settle("rows whose column published is not 1 have not been sent", " AND "+unsent)
	}
}

// addNumbers adds the order column. The server can only do that by building the table anew.
func (p *planner) addNumbers() {
	s := p.s
	why := "numbers the rows. The server builds the table anew for this: applications can read it meanwhile, and their writes WAIT until it is done. " +
		"If the table is too large for that, add the column with gh-ost or pt-online-schema-change, then init again"
	if s.rows {
		why += ". Rows that are there are numbered in the order of the primary key"
	}
	p.add(why, fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s bigint NOT NULL AUTO_INCREMENT, ADD UNIQUE KEY %s (%s), ALGORITHM=INPLACE, LOCK=SHARED",
		s.table.quoted(), quote(s.cols.Order), orderIndex, quote(s.cols.Order)))
}

// createdComment tells the time of insertion that init added from one of the application's own.
const createdComment = "added by connectd"

// addCreated gives rows the time of their insertion from now on; those that are there have none. No server adds a column
// with the present as its default without a look at every row, so that comes afterwards.
func (p *planner) addCreated() {
	s := p.s
	if s.fillCreated {
		p.add("the time of insertion, which rows that are there do not have; no row is touched",
			fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s datetime(6) NULL COMMENT %s, ALGORITHM=INSTANT", s.table.quoted(), quote(s.cols.Created), literal(createdComment)))
	}
	if created := s.found[strings.ToLower(s.cols.Created)]; s.fillCreated || created.ours && created.byDefault == "" {
		p.add("rows inserted from now on have it", fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT (UTC_TIMESTAMP(6)), ALGORITHM=INSTANT",
			s.table.quoted(), quote(s.cols.Created)))
	}
}

// sortNumbers puts rows that are to be sent into the order in which they were inserted, if something tells it.
func (p *planner) sortNumbers(answer core.State) {
	s := p.s
	if answer == core.Published || s.cols.Created == "" || s.fillCreated || s.found[strings.ToLower(s.cols.Created)].ours || !s.addOrder && !s.indexes[orderIndex] {
		return
	}
	t, order, state := s.table.quoted(), quote(s.cols.Order), quote(s.cols.State)
	p.add("pending rows exchange their numbers so that they are in the order of "+s.cols.Created+". One transaction does that for all of them, which takes 10 to 40 s for 100,000 rows: "+
		"applications go on inserting, what they change in those rows waits, and the undo log grows with them. When there are many more, stop here: send or delete what need not come along and init again, "+
		"or add "+s.cols.Order+" yourself, AUTO_INCREMENT and UNIQUE, with the rows numbered as they shall go; then nothing is exchanged", "START TRANSACTION")
	p.add("negative at first, since no number may be there twice", fmt.Sprintf(`UPDATE %[1]s o JOIN (SELECT a.i, b.n
  FROM (SELECT %[2]s i, ROW_NUMBER() OVER (ORDER BY %[3]s, %[4]s) place FROM %[1]s WHERE %[5]s = 'pending') a
  JOIN (SELECT %[4]s n, ROW_NUMBER() OVER (ORDER BY %[4]s) place FROM %[1]s WHERE %[5]s = 'pending') b USING (place)
) m ON o.%[2]s = m.i SET o.%[4]s = -m.n WHERE o.%[4]s <> m.n`, t, quote(s.cols.ID), quote(s.cols.Created), order, state))
	p.add("then the numbers as they shall be", fmt.Sprintf("UPDATE %s SET %s = -%s WHERE %s < 0", t, order, order, order))
	p.add("all or nothing", "COMMIT")
}
