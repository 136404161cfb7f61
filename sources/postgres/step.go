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
func (src *Source) Step(ctx context.Context, owner string, changes []core.Change) error {
	if len(changes) == 0 {
		return ctx.Err()
	}
	st := src.newStep(owner, changes)
	return src.run(ctx, src.work, "step", func(q querier) error {
		var owned int
		if err := q.QueryRow(ctx, st.text, st.args...).Scan(&owned, nil); err != nil {
			return err
		}
		if owned < len(changes) {
			return core.ErrLeaseNotOwned
		}
		return nil
	})
}

// step is the statement for changes. It has only the parts that they need, and is the same for any number of partitions.
type step struct {
	text string
	args []any
	// clean makes text fit for a column.
	clean func(string) string
}

func (src *Source) newStep(owner string, changes []core.Change) *step {
	st := &step{clean: src.clean}
	st.fence(src.s.table.name, owner, changes)
	var published, others []*core.Settlement
	var gone, empty, announced inflight
	for i := range changes {
		c := &changes[i]
		for j := range c.Settle {
			if s := &c.Settle[j]; s.State == core.Published {
				published = append(published, s)
			} else {
				others = append(others, s)
			}
		}
		for _, f := range c.Finished {
			if f.Keep {
				empty.add(c.Lease, f.Batch)
			} else {
				gone.add(c.Lease, f.Batch)
			}
		}
		for _, a := range c.Announce {
			announced.add(c.Lease, a.Batch)
			announced.seqs = append(announced.seqs, arrayText(a.Seqs))
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
	st.finish(gone, empty)
	st.announce(announced)
	st.text = src.text.fill(st.text + ` SELECT count(*), max({durable}) FROM fence`)
	return st
}

// inflight is inflight rows as parameters, one array a column.
type inflight struct {
	parts           []int32
	epochs, batches []int64
	seqs            []string
}

func (in *inflight) add(l core.Lease, batch int64) {
	in.parts, in.epochs, in.batches = append(in.parts, int32(l.Part)), append(in.epochs, l.Epoch), append(in.batches, batch)
}

// arrays are the parameters of the key.
func (st *step) arrays(in inflight) string {
	return st.arg("integer[]", in.parts) + `, ` + st.arg("bigint[]", in.epochs) + `, ` + st.arg("bigint[]", in.batches)
}

// arg adds an argument and returns its parameter.
func (st *step) arg(kind string, value any) string {
	st.args = append(st.args, value)
	return "$" + strconv.Itoa(len(st.args)) + "::" + kind
}

// with adds a part.
func (st *step) with(name, text string) { st.text += ",\n" + name + " AS (" + text + ")" }

// fence locks the leases' rows, in their order, and finds those that are the owner's and have not run out. When it had to
// wait for a lock, the server looks at the row again. It is a gate: each part of the step asks whether all rows were found,
// once, before it begins. Joined to the outbox instead, it would be taken for one row of many. A lease's epoch is found by
// its partition's place, so that there is nothing to join.
func (st *step) fence(tbl, owner string, changes []core.Change) {
	leases := make([]core.Lease, len(changes))
	for i := range changes {
		leases[i] = changes[i].Lease
	}
	slices.SortFunc(leases, func(a, b core.Lease) int { return cmp.Compare(a.Part, b.Part) })
	parts, epochs := make([]int32, len(leases)), make([]int64, len(leases))
	for i, l := range leases {
		parts[i], epochs[i] = int32(l.Part), l.Epoch
	}
	st.text = `WITH fence AS MATERIALIZED (SELECT 1 FROM {connectd_lease} WHERE tbl = ` + st.arg("text", tbl) + ` AND part = ANY (` + st.arg("integer[]", parts) +
		`) AND owner = ` + st.arg("text", owner) + ` AND epoch = (` + st.arg("bigint[]", epochs) + `)[width_bucket(part, $2::integer[])] AND lease_until > {now} ORDER BY part FOR NO KEY UPDATE)`
}

// tblParam is the table's name as every part says it, gate what lets it begin.
const (
	tblParam = `$1::text`
	gate     = `(SELECT count(*) FROM fence) = cardinality($2::integer[])`
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
	return ` WHERE ` + gate + ` AND {order} = ANY (` + l.seqs + `) AND CASE {state} WHEN 'pending' THEN {deliveries known} END = ` + l.row(l.deliveries)
}

func (st *step) publish(list []*core.Settlement) {
	l := st.list(list)
	text := `UPDATE {table} SET {state} = 'published', {published_at} = {now}, {deliveries} = {deliveries known} + 1, {attempts} = ` + l.row(l.attempts) +
		`, {crashes} = ` + l.row(l.crashes) + l.where()
	if !anyCompleted(list) {
		st.with("published", text)
		return
	}
	st.with("published", text+` RETURNING {order}::bigint AS seq, {id}::text AS id`)
	st.complete(list, l)
}

func anyCompleted(list []*core.Settlement) bool {
	return slices.ContainsFunc(list, func(s *core.Settlement) bool { return s.Receipt != "" })
}

// complete stores receipts for those of the rows that were published, in the order of their ids, as SaveReceipts does.
func (st *step) complete(list []*core.Settlement, l settlements) {
	consumers := make([]string, len(list))
	for i, s := range list {
		consumers[i] = st.clean(s.Receipt)
	}
	st.with("completed", `SELECT id, consumer FROM (SELECT id, `+l.of(st.arg("text[]", consumers), "seq")+` AS consumer FROM published) p WHERE consumer <> ''`)
	st.with("receipts", `INSERT INTO {connectd_receipt} (command_id, consumer) SELECT id, consumer FROM completed ORDER BY id ON CONFLICT DO NOTHING`)
}

// remove deletes published rows with their history, and adds a line to the ledger: a line of its own, since one that is
// updated would have the steps of all partitions wait for each other. The ids of those that get a receipt are kept beside
// the receipts.
func (st *step) remove(list []*core.Settlement) {
	seqs, deliveries := make([]int64, len(list)), make([]int32, len(list))
	slices.SortFunc(list, func(a, b *core.Settlement) int { return cmp.Compare(a.Seq, b.Seq) })
	written := false
	for i, s := range list {
		seqs[i], deliveries[i] = s.Seq, int32(s.Deliveries)
		written = written || s.Deliveries > 0
	}
	l := settlements{seqs: st.arg("bigint[]", seqs), deliveries: st.arg("integer[]", deliveries)}
	text := `DELETE FROM {table}` + l.where() + ` RETURNING {order}::bigint AS seq, {deliveries} AS deliveries`
	if anyCompleted(list) {
		st.with("published", text+`, {id}::text AS id`)
		st.complete(list, l)
		st.with("named", `INSERT INTO {connectd_cleaned} (tbl, command_id, at) SELECT `+tblParam+`, id, {now} FROM completed
			ON CONFLICT (tbl, command_id) DO UPDATE SET at = excluded.at`)
	} else {
		st.with("published", text)
	}
	st.with("cleaned", `INSERT INTO {connectd_ledger} (tbl, day, state, count)
		SELECT `+tblParam+`, ({now} AT TIME ZONE 'UTC')::date, 'published', count(*) FROM published HAVING count(*) > 0`)
	if written { // a row that was never written before has no history and no revisions
		of := ` WHERE tbl = ` + tblParam + ` AND seq = ANY (ARRAY(SELECT seq FROM published WHERE deliveries > 0))`
		st.with("forgotten", `DELETE FROM {connectd_attempt}`+of)
		st.with("unrevised", `DELETE FROM {connectd_revision}`+of)
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
	st.with("settled", `UPDATE {table} SET {state} = `+l.row(st.arg("text[]", states))+`, {deliveries} = {deliveries known} + 1, {attempts} = `+l.row(l.attempts)+`, {crashes} = `+l.row(l.crashes)+`,
		{last_error} = coalesce(`+l.row(st.arg("text[]", errors))+`, {last_error}),
		{available_at} = CASE WHEN `+delay+` > 0 THEN {now} + `+delay+` * interval '1 microsecond' ELSE {available_at} END,
		{failing_since} = CASE WHEN `+l.row(l.attempts)+` = 0 THEN NULL ELSE coalesce({failing known}, {now}) END`+
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

// finish deletes or empties inflight rows. Each is looked up by its whole key, and found by where it lies: our leases are
// locked, so nobody moves it.
func (st *step) finish(gone, empty inflight) {
	where := func(in inflight) string {
		return ` WHERE ` + gate + ` AND ctid = ANY (ARRAY(SELECT (SELECT i.ctid FROM {connectd_inflight} i
			WHERE i.tbl = ` + tblParam + ` AND i.part = u.part AND i.epoch = u.epoch AND i.batch = u.batch) FROM unnest(` + st.arrays(in) + `) u (part, epoch, batch)))`
	}
	if gone.parts != nil {
		st.with("finished", `DELETE FROM {connectd_inflight}`+where(gone))
	}
	if empty.parts != nil {
		st.with("emptied", `UPDATE {connectd_inflight} SET seqs = '{}'`+where(empty))
	}
}

func (st *step) announce(in inflight) {
	if in.parts == nil {
		return
	}
	st.with("announced", `INSERT INTO {connectd_inflight} (tbl, part, epoch, batch, seqs)
		SELECT `+tblParam+`, part, epoch, batch, seqs::bigint[] FROM unnest(`+st.arrays(in)+`, `+st.arg("text[]", in.seqs)+`) u (part, epoch, batch, seqs)
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
