package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/core"
)

// surroundings are what a pending row depends on, besides itself.
type surroundings struct {
	found
	queue   core.Queue
	lease   core.LeaseInfo
	workers []heartbeat
}

// surround reads them.
func surround(ctx context.Context, f found) (surroundings, error) {
	s := surroundings{found: f, lease: core.LeaseInfo{Part: f.row.Part}}
	var err error
	if s.queue, err = f.table.ops.Queue(ctx, f.row, f.table.holdsBack()...); err != nil {
		return s, fmt.Errorf("read what is before it: %w", err)
	}
	leases, err := f.table.ops.Leases(ctx)
	if err != nil {
		return s, fmt.Errorf("read the leases: %w", err)
	}
	if i := slices.IndexFunc(leases, func(l core.LeaseInfo) bool { return l.Part == f.row.Part }); i >= 0 {
		s.lease = leases[i]
	}
	workers, err := f.table.ops.Workers(ctx)
	if err != nil {
		return s, fmt.Errorf("read the workers: %w", err)
	}
	s.workers = heartbeats(workers)
	return s, nil
}

// agree says that what was read apart can have been so at one time. Whoever takes a partition deletes what was announced
// in it.
func (s *surroundings) agree() bool {
	sent := s.queue.Sent
	return s.row.Sending == (sent != nil) && (sent == nil || sent.Epoch == s.lease.Epoch)
}

// explainPending gives every reason that holds back a pending row: first that nobody works on its partition, then what
// another row or a person has to do with, then what passes by itself.
func (s *surroundings) explainPending(e *explanation) {
	if s.row.Seq <= 0 {
		e.add(reason{Code: "number_below_one", Say: fmt.Sprintf("Its number in the table's order is %d, and rows are read from 1 on: it is never sent.", s.row.Seq)},
			"in one transaction delete the row and insert it again without a value for the order column, or set its state to 'skipped'")
		return
	}
	if s.queue.Sent != nil {
		s.explainSent(e)
		s.explainSuspect(e)
		return
	}
	worked := s.explainAbsence(e)
	s.explainAhead(e)
	s.explainDelay(e)
	if worked {
		s.explainWorker(e)
	}
	s.explainSuspect(e)
	stopped := len(e.Because) > 0
	s.explainPast(e)
	if worked {
		s.explainTurn(e, !stopped)
	}
	if first := s.queue.First; e.Do == "" && e.has("behind_pending") {
		e.Do = "see what that row waits for: connectd rows explain " + argument(first.ID)
	}
}

// owned says that a worker has the partition now.
func (s *surroundings) owned() bool { return s.lease.Owner != "" && s.lease.Left > 0 }

// owner is the partition's last owner. One without a heartbeat has taken leave, or was forgotten.
func (s *surroundings) owner() heartbeat {
	if i := slices.IndexFunc(s.workers, func(w heartbeat) bool { return w.fact.Owner == s.lease.Owner }); i >= 0 {
		return s.workers[i]
	}
	return heartbeat{fact: workerFact{Owner: s.lease.Owner}}
}

// alive is the worker that was heard last, if that is no longer ago than a lease.
func (s *surroundings) alive() (heartbeat, bool) {
	var last heartbeat
	for i, w := range s.workers {
		if i == 0 || w.age < last.age {
			last = w
		}
	}
	return last, len(s.workers) > 0 && last.age < s.table.policy.Lease
}

func (s *surroundings) in(d time.Duration) string { return stamp(s.queue.Now.Add(d)) }

// away says in how long a moment comes, beside its date. Of one that is years away, which a Duration may not hold, the date says it all.
func (s *surroundings) away(t time.Time) string {
	if t.After(s.queue.Now.AddDate(1, 0, 0)) {
		return ""
	}
	return ", in " + span(t.Sub(s.queue.Now))
}

// explainSent: the row is on its way, or was when its worker went.
func (s *surroundings) explainSent(e *explanation) {
	sent, w := s.queue.Sent, s.owner().fact
	if sent.Epoch != s.lease.Epoch { // whose send it was is not known any more
		w = workerFact{}
	}
	r := reason{Code: "in_flight", Send: rowwork.Sends(s.row) + 1, Since: stamp(sent.At), Worker: &w}
	if s.owned() && sent.Epoch == s.lease.Epoch {
		r.Until = s.in(s.lease.Left)
		r.Say = fmt.Sprintf("Send %d of it is on its way since %s (for %s), in a call of %s that may take %s. The worker's lease ends at %s unless it is renewed.",
			r.Send, r.Since, span(s.queue.Now.Sub(sent.At)), w, span(s.table.policy.Timeout), r.Until)
		e.add(r, "")
		s.explainAbsence(e)
		return
	}
	r.Code = "in_flight_abandoned"
	then := "sends it again, with the possible-duplicate mark"
	switch {
	case s.row.Crashes+1 >= core.MaxCrashes:
		then = fmt.Sprintf("buries it, for it would be its crash %d of %d", core.MaxCrashes, core.MaxCrashes)
	case s.table.policy.HoldUncertain:
		then = "holds it for a person (on_uncertain: hold)"
	}
	r.Say = fmt.Sprintf("Send %d of it was on its way since %s when it was cut off: the lease of %s ran out at %s. The next worker that takes over its partition %s.",
		r.Send, r.Since, w, s.in(s.lease.Left), then)
	if w.Owner == "" {
		r.Worker = nil
		r.Say = fmt.Sprintf("Send %d of it was on its way since %s when its worker left. The next worker that takes its partition %s.", r.Send, r.Since, then)
	}
	e.add(r, "")
	s.explainAbsence(e)
}

// explainAbsence says that nobody works on the row's partition, and reports whether somebody does.
func (s *surroundings) explainAbsence(e *explanation) (worked bool) {
	last, alive := s.alive()
	w := s.owner()
	silent := w.fact.HeardSeconds == nil || w.age >= 2*s.table.policy.Lease/3
	switch {
	case s.owned() && w.info.Engine.Draining:
		return true // it has no heartbeat any more, and lives as long as it renews its lease
	case !alive:
		s.explainNobody(e, last)
	case !s.owned():
		r := reason{Code: "no_owner", Worker: &last.fact, Say: fmt.Sprintf("No worker has its partition (%d)", s.row.Part)}
		if s.lease.Left < 0 {
			r.Since = s.in(s.lease.Left)
			r.Say += fmt.Sprintf(", since %s (for %s)", r.Since, span(-s.lease.Left))
		}
		r.Say += fmt.Sprintf("; %s is alive and takes it at its next look.", last.fact)
		do := ""
		if -s.lease.Left > 2*s.table.policy.Lease {
			do = "look at /readyz and the log of the daemons: a partition should not be free for so long"
		}
		e.add(r, do)
	case silent:
		r := reason{Code: "worker_silent", Worker: &w.fact, Until: s.in(s.lease.Left)}
		r.Say = fmt.Sprintf("%s has its partition (%d) and has not been heard for %s: it has died, is stopped, or cannot reach the database. Another worker takes over when its lease ends at %s.",
			capital(w.fact), s.row.Part, span(w.age), r.Until)
		e.add(r, "")
	default:
		return true
	}
	return false
}

func (s *surroundings) explainNobody(e *explanation, last heartbeat) {
	r := reason{Code: "no_daemon", Say: "No daemon works on this table: none runs, or its sink has not opened yet (/readyz and its log say why)."}
	if len(s.workers) > 0 {
		r.Worker, r.Since = &last.fact, s.in(-last.age)
		r.Say = fmt.Sprintf("No daemon works on this table: %s was the last, heard at %s, %s ago.", last.fact, r.Since, span(last.age))
	}
	if s.owned() {
		r.Until = s.in(s.lease.Left)
		r.Say += fmt.Sprintf(" Its partition (%d) can be taken over from %s on.", s.row.Part, r.Until)
	}
	e.add(r, "start connectd run, or look into its log why it does not come")
}

// explainAhead: a row of its key comes before it.
func (s *surroundings) explainAhead(e *explanation) {
	first := s.queue.First
	if first == nil {
		return
	}
	r := reason{Code: "behind_" + stateText(*first), Row: aboutRow(*first)}
	if first.LastError != "" {
		r.Error = &errorFact{Message: first.LastError}
	}
	r.Say = fmt.Sprintf("It waits behind row %d (id %s) of its key, which ", first.Seq, line(first.ID, 128))
	ask := "connectd rows explain " + argument(first.ID)
	do := ""
	switch {
	case first.State == core.Dead:
		r.Say += "is dead and blocks it (on_dead: block)" + r.Error.String() + "."
		do = "retry or skip that row: " + ask
	case first.State == core.Held:
		r.Say += "is held" + r.Error.String() + "."
		do = "release or skip that row: " + ask
	case first.Sending:
		r.Say += "is on its way."
	case first.AvailableAt.After(s.queue.Now):
		r.Code, r.Until = "behind_backoff", stamp(first.AvailableAt)
		r.Say += fmt.Sprintf("failed %s and is due at %s%s%s.", times(first.Attempts), r.Until, s.away(first.AvailableAt), r.Error)
		if first.Attempts == 0 {
			r.Code = "behind_delayed"
			r.Say = fmt.Sprintf("It waits behind row %d (id %s) of its key, which was written to be sent at %s%s.", first.Seq, line(first.ID, 128), r.Until,
				s.away(first.AvailableAt))
		}
	default:
		r.Say += "is due" + r.Error.String() + "."
	}
	e.add(r, do)
}

// explainDelay: the row itself is not due.
func (s *surroundings) explainDelay(e *explanation) {
	if !s.row.AvailableAt.After(s.queue.Now) {
		return
	}
	r := reason{Code: "backoff", Until: stamp(s.row.AvailableAt), Error: lastError(s.found)}
	r.Say = fmt.Sprintf("It failed %s and is due again at %s%s%s.", times(s.row.Attempts), r.Until, s.away(s.row.AvailableAt), r.Error)
	if s.row.Attempts == 0 {
		r.Code, r.Error = "delayed", nil
		r.Say = fmt.Sprintf("It was written to be sent at %s%s (available_at).", r.Until, s.away(s.row.AvailableAt))
	}
	e.add(r, "")
}

// explainSuspect: the row may be what kills workers or plugins, and is sent with care.
func (s *surroundings) explainSuspect(e *explanation) {
	n := s.row.Crashes
	if n < 2 {
		return
	}
	company := "alone"
	if n == 2 {
		company = "with few others that were too"
	}
	e.add(reason{Code: "suspected", Crashes: n, Say: fmt.Sprintf("It was on its way in %d crashes or hangs of %d that bury a row, so it is sent %s, while the daemon sends nothing else.",
		n, core.MaxCrashes, company)}, "")
}

// explainPast tells what happened last, where no reason before has.
func (s *surroundings) explainPast(e *explanation) {
	a, known := lastEntry(s.history)
	switch {
	case known && rowwork.ByPerson(a):
		explainChange(s.found, e)
	case s.row.LastError != "" && !e.has("backoff"):
		failure := lastError(s.found)
		e.add(reason{Code: "failed_before", Error: failure, Say: fmt.Sprintf("Its last send failed, after %s%s. It is tried again.", sends(rowwork.Sends(s.row)), failure)}, "")
	}
}

// explainTurn says who has the partition, and how many rows go before.
func (s *surroundings) explainTurn(e *explanation, due bool) {
	w := s.owner().fact
	n := s.queue.Before
	r := reason{Code: "leased", Worker: &w, Until: s.in(s.lease.Left), Rows: int64(n), AtLeast: n >= core.QueueBound}
	r.Say = fmt.Sprintf("%s has its partition (%d); the lease ends at %s unless it is renewed.", capital(w), s.row.Part, r.Until)
	if due {
		r.Code = "due"
		before := "no row goes before it"
		switch {
		case r.AtLeast:
			before = fmt.Sprintf("%d rows or more of it go before (whether one of its key is beyond those was not looked at)", n)
			if !s.row.Keyed || !s.table.policy.Ordered {
				before = fmt.Sprintf("%d rows or more of it go before", n)
			}
		case n > 0:
			before = counted(n, "pending row") + " of it come before"
		}
		r.Say = fmt.Sprintf("It is due, and %s has its partition (%d), in which %s: it is sent when its turn comes. The lease ends at %s unless it is renewed.", w, s.row.Part, before, r.Until)
	}
	e.add(r, "")
}

// capital begins a sentence with the name of a worker.
func capital(w workerFact) string { return "W" + w.String()[1:] }
