package engine

import (
	"math"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// read issues the reads that are due. Those that will be short go together, and those that come due soon go along.
func (m *machine) read(parts []*partition, now time.Duration) {
	var due, soon []*partition
	for _, p := range parts {
		switch m.readTurn(p, now) {
		case readNow:
			switch {
			case p.readAlone:
				m.fetch(group{parts: []*partition{p}}, now)
			case !p.long():
				due = append(due, p)
			case m.reads.full < fullCalls:
				m.fetch(group{parts: []*partition{p}, lane: &m.reads.full}, now)
			}
		case readSoon:
			soon = append(soon, p)
		}
	}
	for len(due) > 0 && m.reads.light < lightCalls {
		g := append(due, soon...)
		g = g[:min(len(g), groupParts)]
		soon = soon[max(len(g)-len(due), 0):]
		due = due[min(len(due), len(g)):]
		m.fetch(group{parts: slices.Clone(g), lane: &m.reads.light}, now)
	}
}

// long reports whether p's next read may take long, so that it goes by itself and others do not wait for it with every one of
// theirs: it brings many rows, or it begins at the start and has rows of keys that wait to pass over, nobody knows how many.
func (p *partition) long() bool { return p.expect >= fullCall || p.scanning && len(p.behind) > 0 }

// turn is whether a partition is to be read.
type turn int

const (
	notYet   turn = iota
	readNow       // it is due
	readSoon      // its poll comes within half its pause: it goes along with others and saves a call of its own
)

// readTurn says whether p is to be read and there is room for it; what comes before the rows it issues.
func (m *machine) readTurn(p *partition, now time.Duration) turn {
	if p.draining || m.draining || p.releasing || p.reading {
		return notYet
	}
	if room := m.room(p); room.rows < max(m.memoryShare().rows/4, 1) || room.bytes <= 0 {
		m.lastRead = now // memory is full: there is no need to read
		return notYet
	}
	if !m.at(p.readAgain, now) {
		return notYet
	}
	if !p.scanning {
		if due, at := p.scanDue(now); due {
			p.rescan(m, now)
		} else {
			m.at(at, now)
		}
	}
	switch {
	case p.needBlock && m.policy.Ordered:
		p.reading = true
		m.do(opBlocking{p})
		return notYet
	case p.scanning || m.at(p.nextRead, now):
		return readNow
	case p.nextRead-now <= p.idle/2 && !p.long() && !p.readAlone:
		return readSoon
	}
	return notYet
}

// fetch issues one read for a group's partitions.
func (m *machine) fetch(g group, now time.Duration) {
	o := opFetch{group: m.begun(g, now), reqs: make([]core.FetchRequest, len(g.parts))}
	for i, p := range g.parts {
		p.reading, p.woken, o.reqs[i] = true, false, m.request(p)
	}
	m.do(o)
}

// blocking reports the answer of opBlocking.
func (m *machine) blocking(p *partition, blocks []core.Block, err error, now time.Duration) {
	p.reading = false
	if m.readFailed(p, "blocking", err, now) || p.lost {
		return
	}
	p.needBlock = false
	clear(p.blocked)
	for _, b := range blocks {
		p.blocked[b.Key] = b.Seq
	}
}

// fetched reports the answer of opFetch. After a failure each partition is read alone until that succeeds, so that one that
// cannot be read stops no other.
func (m *machine) fetched(o opFetch, pages []core.Page, err error, now time.Duration) {
	o.ended()
	rows := 0
	for _, page := range pages {
		rows += len(page.Rows)
	}
	m.obs.Read(rows, now-o.began, err)
	for i, p := range o.parts {
		p.reading, p.readAlone = false, err != nil
		if !m.readFailed(p, "fetch", err, now) && !p.lost {
			m.take(p, pages[i], now)
		}
	}
}

func (m *machine) readFailed(p *partition, call string, err error, now time.Duration) bool {
	if !p.lost {
		m.sourceSaid(call, p.lease.Part, err)
	}
	if err == nil {
		m.lastRead = now
		return false
	}
	p.needBlock = p.needBlock || p.scanning
	if p.scanning {
		p.rescan(m, now)
	}
	p.readAgain = now + m.pause(call, p.lease.Part)
	return true
}

// rescan sends the reading position back to the start. Keys that may go on leave behind; blocked ones too, since the
// blocked keys are read anew before the rows.
func (p *partition) rescan(m *machine, now time.Duration) {
	p.scanning, p.needBlock = true, true
	p.pos, p.began = 0, p.told
	p.seen, p.late = p.late, map[int64]bool{}
	p.scanBegan = now
	p.ready, p.scanAt = never, never
	for key, until := range p.behind {
		switch {
		case until == whenRoom:
			if m.nearlyDone(p.keys[key]) {
				delete(p.behind, key)
			}
		case until == never || until <= now:
			delete(p.behind, key)
		default:
			p.ready = min(p.ready, until)
		}
	}
	for seq, until := range p.waiting {
		if until <= now {
			delete(p.waiting, seq)
		} else {
			p.ready = min(p.ready, until)
		}
	}
}

// scanDue reports whether a reading from the start is due, and else when to ask again.
func (p *partition) scanDue(now time.Duration) (bool, time.Duration) {
	at := min(p.scanAt, max(p.ready, p.scanAgain))
	return now >= at, at
}

// after is where the next read begins: at the floor, so that rows that committed late are found, and in the same
// snapshot as the rows that follow; at pos while that is on its way from the start.
func (p *partition) after(m *machine) int64 {
	if m.off.floor {
		return p.pos
	}
	return min(p.floor, p.pos)
}

// request builds the next read. It passes over the rows in memory, by name: a settlement may commit between the read's
// snapshot and its answer, and a row just settled must not come back with its old numbers. (So reads and settlements of a
// partition may overlap. A page is built into memory with what memory says when it arrives: keys that began to wait
// meanwhile are dropped.)
func (m *machine) request(p *partition) core.FetchRequest {
	p.stopped = nil
	req := core.FetchRequest{Part: p.lease.Part, After: p.after(m)}
	room := m.room(p)
	req.Limit, req.MaxBytes = max(room.rows, 1)<<p.crowd, max(room.bytes, 1)<<p.crowd
	for _, e := range p.order {
		if s := e.row.Record.Seq; !e.gone && s > req.After && !m.off.known {
			req.Known = append(req.Known, s)
		}
	}
	if len(p.waiting) > 0 {
		for seq := range p.waiting {
			if seq > req.After {
				req.Known = append(req.Known, seq)
			}
		}
		slices.Sort(req.Known)
	}
	for key := range p.behind {
		if len(req.Exclude) == m.exclude {
			break
		}
		req.Exclude = append(req.Exclude, key)
	}
	slices.Sort(req.Exclude)
	return req
}

// take puts a page into memory and moves the reading position and the floor.
//
// Between the floor and pos there may be more rows that must wait than a read can leave out by name. When a page was cut
// before pos for that, the next one may be twice as long, or it would end at the same place for ever. What then does not fit
// into memory is left for the next read.
func (m *machine) take(p *partition, page core.Page, now time.Duration) {
	doubt := m.tells(p, page.Changes, now)
	taken, before := 0, p.pos
	end := int64(math.MaxInt64) // how far this read went; a page that was cut may end behind pos
	for i, r := range page.Rows {
		if room := m.room(p); p.crowd > 0 && i > 0 && (room.rows <= 0 || room.bytes <= 0) {
			page.More, end = true, page.Rows[i-1].Record.Seq
			break
		}
		if !m.doubted(p, &r, doubt, now) && m.admit(p, r, now) {
			taken++
		}
		if p.pos = max(p.pos, r.Record.Seq); page.More {
			end = r.Record.Seq
		}
	}
	stuck := page.More && taken == 0 && end <= before
	if stuck {
		p.crowd = min(p.crowd+1, maxCrowd)
	} else if !page.More {
		p.crowd = max(p.crowd-1, 0)
	}
	if p.scanning && (!page.More || p.pos >= p.high) {
		p.scanning = false
		p.pos = max(p.pos, p.high)
		p.scanAt = min(p.scanAt, now+around(m.rand, rescanEvery))
		p.scanAgain = now + max(rescanPause, min(4*(now-p.scanBegan), 5*time.Second))
	}
	p.high = max(p.high, p.pos)
	p.raiseFloor(page.Horizon, end, now)
	if p.expect = len(page.Rows); page.More {
		p.expect = max(p.expect, fullCall)
	}
	switch {
	case stuck:
		p.nextRead = now + m.policy.PollMin
	case page.More || p.scanning || p.woken:
		p.nextRead = now
	case taken > 0:
		p.idle = m.policy.PollMin
		p.nextRead = now + around(m.rand, p.idle)
	default:
		p.idle = min(max(2*p.idle, m.policy.PollMin), m.policy.PollMax)
		p.nextRead = now + around(m.rand, p.idle)
	}
}

// doubt is how far a page's order is to be trusted.
type doubt int

const (
	noDoubt   doubt = iota
	newBehind       // rows may have come back behind pos
	newAmong        // and such that the read was to pass over
)

// tells notes what a page tells of changes of the operators. Rows that they gave back in their order are read in it: a page may
// have such a row while one of its key, given back before, is not there and would not be looked for. That one's place may have
// been read before the change; or the page was to pass over it as a row in memory, which has stopped since or is just about to.
func (m *machine) tells(p *partition, changes int64, now time.Duration) doubt {
	if changes == 0 || m.off.changes {
		return noDoubt
	}
	p.told = max(p.told, changes)
	switch {
	case p.passedOver(changes) && !m.off.stopped:
		p.ready = now
		return newAmong
	case changes == p.began:
		return noDoubt
	case p.scanning && p.pos == 0:
		p.began, p.ready = changes, now // the blocked keys were read before
		return noDoubt
	}
	return newBehind
}

// doubted lets a row wait, with its key, for the next reading from the start, which has what came back before it. A row that was
// there in the last one is not in doubt: what came back before it was there when this one began. So it goes on while operators
// give back more and more.
func (m *machine) doubted(p *partition, r *core.Row, d doubt, now time.Duration) bool {
	key, keyed := m.key(r)
	seq := r.Record.Seq
	seen := p.seen[seq]
	if !m.off.seenForEver {
		delete(p.seen, seq) // it may come back once more
	}
	if d == noDoubt || !keyed || r.Deliveries == 0 || p.rows[seq] != nil || d == newBehind && seen {
		return false
	}
	if len(p.late) < maxExclude {
		p.late[seq] = true
	}
	if _, behind := p.behind[key]; !behind {
		p.putBehind(key, now)
	}
	return true
}

// passedOver reports whether a read that tells of changes may have passed over rows that were given back: their stop was not
// known when it was asked for, and the changes came after.
func (p *partition) passedOver(changes int64) bool {
	for _, s := range []*step{p.stopped, p.step} {
		if s != nil && s.stops && s.changes != changes {
			return true
		}
	}
	return false
}

// raiseFloor moves the floor to positions noted before every transaction that ran then had ended, as far as this read
// went; and notes the present position.
func (p *partition) raiseFloor(h *core.Horizon, end int64, now time.Duration) {
	if h == nil {
		p.floor = max(p.floor, p.pos)
		return
	}
	for len(p.notes) > 0 {
		n := p.notes[0]
		if h.Oldest < n.next || now-n.at < floorNoteAge || n.pos > end {
			break
		}
		p.floor = max(p.floor, n.pos)
		p.notes = p.notes[1:]
	}
	if k := len(p.notes); k == 0 || (now-p.notes[k-1].at >= time.Second && k < maxNotes) {
		p.notes = append(p.notes, note{pos: p.pos, next: h.Next, at: now})
	}
}
