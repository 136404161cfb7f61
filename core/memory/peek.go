package memory

import (
	"time"

	"github.com/connectd/connectd/core"
)

// Row returns one row as it stands; Sending is not filled in. It is cheap.
func (s *Source) Row(seq int64) (core.RowInfo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.bySeq[seq]
	if r == nil {
		return core.RowInfo{}, false
	}
	return r.info(nil), true
}

// Lease returns who holds a partition ("" for nobody), under which epoch, and until when.
func (s *Source) Lease(part int) (owner string, epoch int64, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.part(part)
	return p.owner, p.epoch, p.until
}
