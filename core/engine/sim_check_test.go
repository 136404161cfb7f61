package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
)

// history is what really happened to a row, which nobody in the simulated world knows.
type history struct {
	id, key           string
	committed         time.Duration
	begun             int  // sends begun by a worker, less those answered throttled or not attempted
	sent              bool // some send may have taken effect
	confirmed         bool
	marked            bool // an acquisition found it announced
	answers           int  // failures that may count as attempts
	crashes           int  // crashes while it was in flight
	alone             int  // of these, those in which it was alone in its process
	released, retried bool
	given             int           // by a person, as the n-th of all; 0: never
	awaited           time.Duration // since when it was given back and has not been sent; 0: it was not
}

func (h *history) kind() string { k, _, _ := strings.Cut(h.id, "-"); return k }

// innocent reports whether the row never kills and never hangs.
func (h *history) innocent() bool {
	return h.kind() == "row" || h.kind() == "flaky" || h.kind() == "bad"
}

func (s *sim) noteBegun(c *simConn, r *core.Record) {
	h := s.rows[rowID{c.table, r.Seq}]
	if h == nil {
		s.fail("I1: row %d is sent and was never committed", r.Seq)
		return
	}
	h.begun++
	h.awaited = 0
	if s.sc.clean && h.begun > 1 {
		s.fail("G2: row %d is sent twice and nothing failed", r.Seq)
	}
	row, _ := c.source.Row(r.Seq)
	if !c.w.napped && !s.owns(c, row.Part, r.Epoch) {
		s.fail("G5: a worker that never paused begins to send row %d when its lease is over", r.Seq)
	}
}

// noteAnswers counts what a worker learns: what was throttled or not attempted, or failed because of the sink, is as if it had
// not been sent.
func (s *sim) noteAnswers(c *simConn, records []core.Record, outcomes []core.Outcome) {
	for i, o := range outcomes {
		h := s.rows[rowID{c.table, records[i].Seq}]
		switch {
		case o.Kind == core.Throttled, o.Kind == core.NotAttempted, o.Scope == core.ScopeSink && !o.Unknown:
			h.begun--
		case o.Kind == core.Delivered, o.Scope == core.ScopeSink:
		default:
			h.answers++
		}
	}
}

func (s *sim) confirm(c *simConn, r *core.Record) { s.rows[rowID{c.table, r.Seq}].confirmed = true }

func (s *sim) noteCrash(call *simCall) {
	for i := range call.records {
		h := s.rows[rowID{call.c.table, call.records[i].Seq}]
		h.crashes++
		if call.alone {
			h.alone++
		}
	}
}

// announced is the inflight row that names a row.
type announced struct {
	batch batchID
	rows  int
}

// noteRecovered checks a takeover's count for one row.
func (s *sim) noteRecovered(id rowID, before core.RowInfo, in announced) {
	h := s.rows[id]
	h.marked = true
	if in.rows == 1 {
		h.alone++
	}
	if s.settled[in.batch] {
		s.fail("I5: row %d is counted for a batch that was settled before", id.seq)
	}
	for _, w := range s.workers {
		for _, p := range w.conns[id.table].m.parts {
			if p.lease == (core.Lease{Part: in.batch.part, Epoch: in.batch.epoch}) && p.batches[in.batch.batch] == nil {
				s.fail("I5: row %d is counted for a batch that its worker %s knows nothing of", id.seq, w.owner)
			}
		}
	}
	if before.Crashes < 3 {
		return
	}
	if in.rows != 1 {
		s.fail("I10: row %d stood at %d crashes and is counted in an announcement of %d", id.seq, before.Crashes, in.rows)
	}
	in.batch.batch = 0
	for _, other := range s.deaths[in.batch] {
		if other != id {
			s.fail("I10: row %d stood at %d crashes and is counted, and row %d was being sent", id.seq, before.Crashes, other.seq)
		}
	}
}

// owns reports whether a send under that record's epoch is one of the lease's owner.
func (s *sim) owns(c *simConn, part int, epoch int64) bool {
	owner, e, until := c.source.Lease(part)
	return owner == c.w.owner && e == epoch && until.After(simBegan.Add(s.now))
}

// checkSend looks at one record as it takes effect. Promises are for sends of the lease's owner: what a paused or cancelled
// call does late, nobody can prevent.
func (s *sim) checkSend(call *simCall, r *core.Record, done map[rowID]bool) {
	c := call.c
	id := rowID{c.table, r.Seq}
	h := s.rows[id]
	row, ok := c.source.Row(r.Seq)
	if !ok {
		s.fail("I1: row %d is sent and is not in the table", r.Seq)
		return
	}
	first := !h.sent
	h.sent = true
	if call.ended || !s.owns(c, row.Part, r.Epoch) {
		return
	}
	if row.State != core.Pending {
		s.fail("I1: row %d is sent and is %s", r.Seq, row.State)
	}
	if !s.announced(c, row.Part, r) {
		s.fail("I2: row %d is sent without an inflight row", r.Seq)
	}
	if !first && !r.PossibleDuplicate() && h.begun > 1 {
		s.fail("I3: row %d is sent again without the mark", r.Seq)
	}
	if first && h.begun <= 1 && r.PossibleDuplicate() && !h.marked && !h.retried && !h.released && h.answers == 0 {
		s.fail("I5: row %d bears a mark and was never announced when its partition changed hands", r.Seq)
	}
	if r.Deliveries != row.Deliveries+1 {
		s.fail("I12: row %d is sent as number %d and the table says %d before", r.Seq, r.Deliveries, row.Deliveries)
	}
	if s.sc.hold && h.begun > 1 && !h.released && !h.retried && h.answers == 0 {
		s.fail("I7: row %d may have been sent, nobody released it, and it is sent again", r.Seq)
	}
	s.checkOrder(c, id, h, done)
}

func (s *sim) announced(c *simConn, part int, r *core.Record) bool {
	for _, in := range c.source.Inflight(part) {
		if in.Epoch != r.Epoch {
			continue
		}
		for _, seq := range in.Seqs {
			if seq == r.Seq {
				return true
			}
		}
	}
	return false
}

// checkOrder is I6.
func (s *sim) checkOrder(c *simConn, id rowID, h *history, done map[rowID]bool) {
	if h.key == "" || s.sc.unordered || s.sc.early { // a seq taken before its transaction has no place in the order
		return
	}
	for other, o := range s.rows {
		if other.table != id.table || other.seq >= id.seq || o.key != h.key || o.committed >= h.committed || done[other] {
			continue
		}
		row, _ := c.source.Row(other.seq)
		switch {
		case 0 < o.given && o.given < h.given && row.State == core.Pending:
			s.fail("I6: row %d of key %s is sent while row %d is pending, which was given back before it", id.seq, h.key, other.seq)
		case o.retried && !s.sc.block: // late by choice
		case row.State == core.Pending, row.State == core.Held, row.State == core.Dead && s.sc.block:
			s.fail("I6: row %d of key %s is sent while row %d is %s", id.seq, h.key, other.seq, row.State)
		}
	}
}

// checkSettled looks at rows just settled.
func (s *sim) checkSettled(table int, change core.Change) {
	for _, f := range change.Finished {
		s.settled[batchID{table, change.Lease.Part, change.Lease.Epoch, f.Batch}] = true
	}
	for _, set := range change.Settle {
		h := s.rows[rowID{table, set.Seq}]
		row, ok := s.tables[table].Row(set.Seq)
		if !ok || h == nil || row.State != set.State || row.Deliveries != set.Deliveries+1 {
			continue
		}
		if (row.State == core.Dead || row.State == core.Held) && s.chance(s.sc.eager) {
			s.after(s.upTo(40*time.Millisecond), func() { s.giveBackStopped(table, set.Seq) })
		}
		if row.State == core.Published {
			if !h.confirmed {
				s.fail("I8: row %d is published and the sink never confirmed it", set.Seq)
			}
			if row.Deliveries < h.begun {
				s.fail("I4: row %d is published with deliveries %d after %d sends", set.Seq, row.Deliveries, h.begun)
			}
		}
		if set.State == core.Pending && set.Delay > 0 {
			h.alone = 0 // an answer about the row: what crashed before is forgotten
		}
		if set.Crashes >= 4 && h.alone == 0 && h.kind() == "row" {
			s.fail("I10: row %d is at %d crashes and was never alone", set.Seq, set.Crashes)
		}
	}
}

// watchGivenBack looks whether rows that were given back are read in time, where nothing of their key is in the way.
func (s *sim) watchGivenBack() {
	s.after(200*time.Millisecond, s.watchGivenBack)
	blocking := s.blockingRows()
	for id, h := range s.rows {
		row, _ := s.tables[id.table].Row(id.seq)
		at, blocked := blocking[h.key]
		switch {
		case h.awaited == 0 || row.State != core.Pending:
		case h.key != "" && blocked && id.seq > at:
			h.awaited = s.now
		case s.inMemory(id, h):
			h.awaited = 0
		case s.now-h.awaited > s.sc.readWithin:
			s.fail("row %d of key %q was given back at %v and is not read", id.seq, h.key, h.awaited)
		}
	}
}

// inMemory reports whether a worker has the row in memory, or has enough of its key.
func (s *sim) inMemory(id rowID, h *history) bool {
	for _, w := range s.workers {
		for _, p := range w.conns[id.table].m.parts {
			if p.rows[id.seq] != nil || p.behind[h.key] == whenRoom {
				return true
			}
		}
	}
	return false
}

// checkEnd holds the books against each other when all is quiet.
func (s *sim) checkEnd() error {
	for id, h := range s.rows {
		row, ok := s.tables[id.table].Row(id.seq)
		switch {
		case !ok:
			s.fail("row %d vanished", id.seq)
		case row.State == core.Dead && strings.HasPrefix(row.LastError, core.ReasonCrash) && h.innocent() && (h.alone < 3 || s.sc.harmless()):
			s.fail("I10: row %d is innocent and was buried for crashes, alone in %d", id.seq, h.alone)
		case row.State == core.Dead && h.kind() == "row" && !s.sc.refusing && !strings.HasPrefix(row.LastError, core.ReasonCrash):
			s.fail("row %d is innocent and was buried: %s", id.seq, row.LastError)
		case row.State == core.Published && h.kind() == "bad":
			s.fail("I8: row %d is published and can not be", id.seq)
		case row.Attempts > h.answers:
			s.fail("row %d counts %d attempts after %d failures", id.seq, row.Attempts, h.answers)
		}
	}
	for n, table := range s.tables {
		s.checkReceipts(n, table)
	}
	return s.violation
}

// checkReceipts holds that the rows that were completed have a receipt, and no others.
func (s *sim) checkReceipts(n int, table *memory.Source) {
	list, err := table.Receipts(context.Background(), core.ReceiptFilter{Limit: len(s.rows) + 1})
	if err != nil {
		s.fail("receipts: %v", err)
	}
	has := map[string]bool{}
	for _, r := range list {
		has[r.Command] = true
	}
	for id, h := range s.rows {
		if id.table != n {
			continue
		}
		row, _ := table.Row(id.seq)
		if want := row.State == core.Published && completes(id.seq); has[h.id] != want {
			s.fail("G8: row %d is %s and has a receipt: %v", id.seq, row.State, has[h.id])
		}
	}
}

// atRest reports I11: each row is at an end, or behind a row that blocks its key.
func (s *sim) atRest() bool { return s.unfinished() == "" && !s.running() }

// running reports whether a producer's transaction is still open.
func (s *sim) running() bool { return len(s.locked) > 0 || s.now < s.sc.length() }

// onTrial reports whether a row waits for a person: its next crash would bury it, and so did one before, and nothing
// was delivered since that would show that it is not the sink that dies on everything; or it fails every call.
func (s *sim) onTrial(h *history, row core.RowInfo) bool {
	return row.State == core.Pending && (row.Crashes >= core.MaxCrashes-1 && h.kind() != "row" || h.kind() == "spoil")
}

// blockingRows are the lowest rows that their keys wait for.
func (s *sim) blockingRows() map[string]int64 {
	lowest := map[string]int64{}
	for id, h := range s.rows {
		row, _ := s.tables[id.table].Row(id.seq)
		if h.key != "" && !s.sc.unordered && (row.State == core.Held || row.State == core.Dead && s.sc.block || s.onTrial(h, row)) {
			if at, ok := lowest[h.key]; !ok || id.seq < at {
				lowest[h.key] = id.seq
			}
		}
	}
	return lowest
}

func (s *sim) unfinished() string {
	lowest := s.blockingRows()
	for id, h := range s.rows {
		row, _ := s.tables[id.table].Row(id.seq)
		at, blocked := lowest[h.key]
		if row.State == core.Pending && !(blocked && id.seq > at) && !s.onTrial(h, row) {
			return fmt.Sprintf("row %d (%s, key %q) is pending: %d attempts, %d deliveries, %d crashes", id.seq, h.id, h.key,
				row.Attempts, row.Deliveries, row.Crashes)
		}
	}
	return ""
}
