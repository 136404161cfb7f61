package engine

// Memory for rows is bounded twice, in rows and in bytes. Each partition has an even share of the connector's budget, which is
// twice what can be in flight. Of that each key has a share: a key is in one batch at a time, so slow keys can fill the memory
// of a partition only when they are as many as the calls that may run at once, and then nothing else could be sent anyway.
// Where partitions are many that is little, and a key on which everything depends would go in small batches, and its rows be
// read again for each. So a key may hold two usual batches. What is beyond its share is lent to it, by a pool that is as large as
// the budget, and nobody else's share is less for it.

// amount is some rows and their bytes.
type amount struct {
	rows  int
	bytes int64
}

func (a amount) plus(b amount) amount  { return amount{a.rows + b.rows, a.bytes + b.bytes} }
func (a amount) minus(b amount) amount { return amount{a.rows - b.rows, a.bytes - b.bytes} }
func (a amount) by(n int) amount       { return amount{a.rows / n, a.bytes / int64(n)} }

// below reports whether a has room for more below b.
func (a amount) below(b amount) bool { return a.rows < b.rows && a.bytes < b.bytes }

func (a amount) atMost(b amount) amount { return amount{min(a.rows, b.rows), min(a.bytes, b.bytes)} }

// budget is twice what can be in flight.
func (m *machine) budget() amount {
	return amount{2 * m.policy.InFlight * m.usualRecords(), 2 * int64(m.policy.InFlight) * m.maxBytes()}
}

// memoryShare is a partition's. Its floor leaves room for a probe's batch, and each key that a call may be busy with a few rows.
func (m *machine) memoryShare() amount {
	even := m.budget().by(max(len(m.parts), 1))
	return amount{max(even.rows, min(2*m.maxRecords(), 256), 4*m.slots()), max(even.bytes, 256<<10)}
}

// keyShare is a key's. Those of as many keys as may be in a call leave the quarter of a partition's for which a read is
// worth while: see readTurn.
func (m *machine) keyShare() amount {
	share := m.memoryShare()
	n := max(m.slots(), 2)
	return amount{max((share.rows-share.rows/4)/n, 1), share.bytes / int64(n)}
}

// loan is how much a key may have beyond its share.
func (m *machine) loan() amount {
	loan := m.budget().by(m.slots()).minus(m.keyShare())
	return amount{max(loan.rows, 0), max(loan.bytes, 0)}
}

// room is how much more may be read into p's share.
func (m *machine) room(p *partition) amount {
	return m.memoryShare().minus(p.memory.minus(p.lent))
}

// pool is what is left to be lent.
func (m *machine) pool() amount {
	left := m.budget()
	for _, p := range m.parts {
		left = left.minus(p.lent)
	}
	return left
}

// place says whether there is room for one more row of a key, and whether on loan.
func (m *machine) place(ks *keyState) (ok, lent bool) {
	switch {
	case ks == nil || ks.memory.minus(ks.lent).below(m.keyShare()):
		return true, false
	case ks.lent.below(m.loan()) && (amount{}).below(m.pool()):
		return true, true
	}
	return false, false
}

// nearlyDone reports whether so little of a key is left in memory, of what it could have there, that its next rows should be
// read.
func (m *machine) nearlyDone(ks *keyState) bool {
	if ks == nil {
		return true
	}
	half := m.keyShare().plus(ks.lent.plus(m.pool()).atMost(m.loan())).by(2)
	return ks.memory.rows <= half.rows && ks.memory.bytes <= half.bytes
}
