package postgres

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

// Step settles and announces in one statement, which is one transaction and one round trip, behind the fence.
func (src *Source) Step(ctx context.Context, owner string, c core.Change) error {
	st := src.newStep(owner, &c)
	return src.run(ctx, src.work, "step", func(q querier) error {
		var owned int
		if err := q.QueryRow(ctx, st.text, st.args...).Scan(&owned, nil); err != nil {
			return err
		}
		if owned == 0 {
			return core.ErrLeaseNotOwned
		}
		return nil
	})
}

// step is the statement for one change. It has only the parts that the change needs.
type step struct {
	text string
	args []any
	part string // the parameter for the partition
	// clean makes text fit for a column.
	clean func(string) string
}

func (src *Source) newStep(owner string, c *core.Change) *step {
	st := &step{clean: src.clean}
	st.fence(src.s.table.name, owner, c.Lease)
	var published, others []*core.Settlement
	for i := range c.Settle {
		if s := &c.Settle[i]; s.State == core.Published {
			published = append(published, s)
		} else {
			others = append(others, s)
		}
	}
	switch {
	case len(published) == 0:
	case src.deletePublished:
		st.remove(published)
	default:
		st.publish(published)
	}
	if len(others) > 0 {
		st.settle(others, owner)
	}
	st.finish(c.Finished, c.Lease)
	st.announce(c.Announce, c.Lease)
	st.text = src.text.fill(st.text + ` SELECT count(*), max({durable}) FROM fence`)
	return st
}

// arg adds an argument and returns its parameter.
func (st *step) arg(kind string, value any) string {
	st.args = append(st.args, value)
	return "$" + strconv.Itoa(len(st.args)) + "::" + kind
}

// with adds a part.
func (st *step) with(name, text string) { st.text += ",\n" + name + " AS (" + text + ")" }

// fence locks the lease's row and finds it only if it is the owner's and has not run out. When it had to wait for the
// lock, the server looks at the row again. It is a gate: each part of the step asks whether a row was found, once,
// before it begins. Joined to the outbox instead, it would be taken for one row of many.
func (st *step) fence(tbl, owner string, l core.Lease) {
	st.text = `WITH fence AS MATERIALIZED (SELECT 1 FROM {connectd_lease} WHERE tbl = ` + st.arg("text", tbl)
	st.part = st.arg("integer", int64(l.Part))
	st.text += ` AND part = ` + st.part + ` AND owner = ` + st.arg("text", owner) + ` AND epoch = ` + st.arg("bigint", l.Epoch) + ` AND lease_until > {now} FOR NO KEY UPDATE)`
}

// tblParam is the table's name as every part says it, gate what lets it begin.
const (
	tblParam = `$1::text`
	gate     = `(SELECT count(*) FROM fence) = 1`
)

// settlements are a list of them as parameters, one array a column, in the order of the seqs. A statement finds a row's
// place in them by binary search, which is what width_bucket does: so the list is no relation that a plan could join
// the wrong way.
type settlements struct{ seqs, deliveries, attempts, crashes string }

func (st *step) list(list []*core.Settlement) settlements {
	bySeq := func(a, b *core.Settlement) int { return cmp.Compare(a.Seq, b.Seq) }
	if !slices.IsSortedFunc(list, bySeq) {
		slices.SortFunc(list, bySeq)
	}
	seqs := make([]int64, len(list))
	deliveries, attempts, crashes := make([]int32, len(list)), make([]int32, len(list)), make([]int32, len(list))
	for i, s := range list {
		seqs[i], deliveries[i], attempts[i], crashes[i] = s.Seq, int32(s.Deliveries), int32(s.Attempts), int32(s.Crashes)
	}
	return settlements{st.arg("bigint[]", seqs), st.arg("integer[]", deliveries), st.arg("integer[]", attempts), st.arg("integer[]", crashes)}
}

// of is an array's element for the row with that seq.
func (l settlements) of(array, seq string) string {
	return `(` + array + `)[width_bucket(` + seq + `, ` + l.seqs + `)]`
}

// row is an array's element for a row of the table.
func (l settlements) row(array string) string { return l.of(array, `{order}::bigint`) }

// where finds the rows that are still what the settlements know of them, each by its seq. Said in one expression, that
// a row is pending lets no other index serve: statistics that were taken while there were few rows would make walking
// through all that are pending look cheaper.
func (l settlements) where() string {
	return ` WHERE ` + gate + ` AND {order} = ANY (` + l.seqs + `) AND CASE {state} WHEN 'pending' THEN {deliveries} END = ` + l.row(l.deliveries)
}

func (st *step) publish(list []*core.Settlement) {
	l := st.list(list)
	st.with("published", `UPDATE {table} SET {state} = 'published', {published_at} = {now}, {deliveries} = {deliveries} + 1, {attempts} = `+l.row(l.attempts)+
		`, {crashes} = `+l.row(l.crashes)+l.where())
}

// remove deletes published rows with their history, and adds a line to the ledger: a line of its own, since one that is
// updated would have the steps of all partitions wait for each other.
func (st *step) remove(list []*core.Settlement) {
	seqs, deliveries := make([]int64, len(list)), make([]int32, len(list))
	slices.SortFunc(list, func(a, b *core.Settlement) int { return cmp.Compare(a.Seq, b.Seq) })
	written := false
	for i, s := range list {
		seqs[i], deliveries[i] = s.Seq, int32(s.Deliveries)
		written = written || s.Deliveries > 0
	}
	l := settlements{seqs: st.arg("bigint[]", seqs), deliveries: st.arg("integer[]", deliveries)}
	st.with("published", `DELETE FROM {table}`+l.where()+` RETURNING {order}::bigint AS seq, {deliveries} AS deliveries`)
	st.with("cleaned", `INSERT INTO {connectd_ledger} (tbl, day, state, count)
		SELECT `+tblParam+`, ({now} AT TIME ZONE 'UTC')::date, 'published', count(*) FROM published HAVING count(*) > 0`)
	if written { // a row that was never written before has no history
		st.with("forgotten", `DELETE FROM {connectd_attempt} WHERE tbl = `+tblParam+` AND seq = ANY (ARRAY(SELECT seq FROM published WHERE deliveries > 0))`)
	}
}

// settle writes rows that are not published, and a line of history for each that has a failure.
func (st *step) settle(list []*core.Settlement, owner string) {
	l := st.list(list)
	n := len(list)
	states, delays := make([]string, n), make([]int64, n)
	errors, codes, messages, durations, sent := make([]*string, n), make([]*string, n), make([]string, n), make([]int64, n), make([]bool, n)
	for i, s := range list {
		states[i] = string(s.State)
		if s.Delay > 0 {
			delays[i] = max(s.Delay.Microseconds(), 1)
		}
		if f := s.Failure; f != nil {
			text, code := st.clean(layout.ErrorText(f)), st.clean(f.Code)
			errors[i], codes[i], messages[i], durations[i], sent[i] = &text, &code, st.clean(f.Message), f.Duration.Microseconds(), !f.Unsent
		}
	}
	delay := l.row(st.arg("bigint[]", delays))
	st.with("settled", `UPDATE {table} SET {state} = `+l.row(st.arg("text[]", states))+`, {deliveries} = {deliveries} + 1, {attempts} = `+l.row(l.attempts)+`, {crashes} = `+l.row(l.crashes)+`,
		{last_error} = coalesce(`+l.row(st.arg("text[]", errors))+`, {last_error}),
		{available_at} = CASE WHEN `+delay+` > 0 THEN {now} + `+delay+` * interval '1 microsecond' ELSE {available_at} END,
		{failing_since} = CASE WHEN `+l.row(l.attempts)+` = 0 THEN NULL ELSE coalesce({failing_since}, {now}) END`+
		l.where()+` RETURNING {order}::bigint AS seq, {deliveries} AS deliveries`)
	code := l.of(st.arg("text[]", codes), "seq")
	st.with("noted", `INSERT INTO {connectd_attempt} (tbl, seq, at, deliveries, code, message, by, duration_us)
		SELECT `+tblParam+`, seq, {now}, CASE WHEN `+l.of(st.arg("boolean[]", sent), "seq")+` THEN deliveries ELSE 0 END, `+code+`, `+
		l.of(st.arg("text[]", messages), "seq")+`, `+st.arg("text", st.clean(owner))+`, `+l.of(st.arg("bigint[]", durations), "seq")+`
		FROM settled WHERE `+code+` IS NOT NULL`)
	st.trim(list)
}

// trim keeps the newest lines of history of rows that may have more than a row may have, with room for one that is
// being added.
func (st *step) trim(list []*core.Settlement) {
	var long []int64
	for _, s := range list {
		// Each failure raises deliveries, and a person's two changes to a dead or held row follow one.
		if s.Failure != nil && s.Deliveries >= core.MaxHistory/3 {
			long = append(long, s.Seq)
		}
	}
	if len(long) > 0 {
		st.with("trimmed", trimHistory+` AND `+gate+` AND a.seq = ANY (`+st.arg("bigint[]", long)+`)`)
	}
}

// trimHistory makes room for one more line in the history of rows.
var trimHistory = `DELETE FROM {connectd_attempt} a WHERE a.tbl = ` + tblParam + ` AND a.n <=
	(SELECT b.n FROM {connectd_attempt} b WHERE b.tbl = a.tbl AND b.seq = a.seq ORDER BY b.n DESC OFFSET ` + strconv.Itoa(core.MaxHistory-1) + ` LIMIT 1)`

func (st *step) finish(list []core.Finished, l core.Lease) {
	var gone, empty []int64
	for _, f := range list {
		if f.Keep {
			empty = append(empty, f.Batch)
		} else {
			gone = append(gone, f.Batch)
		}
	}
	where := ` WHERE ` + gate + ` AND tbl = ` + tblParam + ` AND part = ` + st.part + ` AND epoch = `
	if gone != nil {
		st.with("finished", `DELETE FROM {connectd_inflight}`+where+st.arg("bigint", l.Epoch)+` AND batch = ANY (`+st.arg("bigint[]", gone)+`)`)
	}
	if empty != nil {
		st.with("emptied", `UPDATE {connectd_inflight} SET seqs = '{}'`+where+st.arg("bigint", l.Epoch)+` AND batch = ANY (`+st.arg("bigint[]", empty)+`)`)
	}
}

func (st *step) announce(list []core.Announcement, l core.Lease) {
	if len(list) == 0 {
		return
	}
	batches, seqs := make([]int64, len(list)), make([]string, len(list))
	for i, a := range list {
		batches[i], seqs[i] = a.Batch, arrayText(a.Seqs)
	}
	st.with("announced", `INSERT INTO {connectd_inflight} (tbl, part, epoch, batch, seqs)
		SELECT `+tblParam+`, `+st.part+`, `+st.arg("bigint", l.Epoch)+`, batch, seqs::bigint[] FROM unnest(`+st.arg("bigint[]", batches)+`, `+st.arg("text[]", seqs)+`) u (batch, seqs)
		WHERE `+gate+` ON CONFLICT DO NOTHING`)
}

// arrayText writes seqs as the text of an array; arrays of arrays would all have to be of one length.
func arrayText(seqs []int64) string {
	b := make([]byte, 0, 2+8*len(seqs))
	b = append(b, '{')
	for i, seq := range seqs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, seq, 10)
	}
	return string(append(b, '}'))
}

// clean makes text fit for a column of the database: recording a failure must not fail.
func (src *Source) clean(text string) string {
	text = core.CleanText(text)
	if !src.ascii {
		return text
	}
	return strings.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return '?'
		}
		return r
	}, text)
}
