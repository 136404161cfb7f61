package main

import (
	"fmt"
	"slices"

	"github.com/connectd/connectd/core"
)

// explainWorker: the worker that has the partition cannot send, or not this row.
func (s *surroundings) explainWorker(e *explanation) {
	w := s.owner()
	engine := w.info.Engine
	switch {
	case engine.Draining:
		e.add(reason{Code: "worker_draining", Worker: &w.fact, Say: capital(w.fact) + " is stopping: it finishes what is on its way and begins nothing; then another worker takes its partition."}, "")
	case engine.SourceError != "":
		e.add(reason{Code: "source_error", Worker: &w.fact, Error: &errorFact{Message: engine.SourceError},
			Say: fmt.Sprintf("%s cannot work on the table: %s.", capital(w.fact), line(engine.SourceError, core.MaxErrorText))}, "mend what keeps it from the database")
	}
	if h := w.info.HeldBack; h != nil && s.row.Seq > h.After {
		e.add(reason{Code: "open_transaction", Holder: h.Holder, Since: stamp(h.Since), Rows: h.Rows,
			Say: fmt.Sprintf("An older transaction is open that could still commit an earlier row (ordering: commit), since %s: %s.", stamp(h.Since), line(h.Holder, 512))},
			"let that transaction end: commit it, roll it back, or end its session")
	}
	s.explainGate(e, w)
}

// explainGate: the sink as a whole takes nothing now, or not what this row wants.
func (s *surroundings) explainGate(e *explanation, w heartbeat) {
	engine := w.info.Engine
	if engine.Gate != "" && engine.Gate != "open" {
		r := reason{Code: "gate_" + engine.Gate, Worker: &w.fact, Error: &errorFact{Message: engine.GateReason}}
		r.Say = fmt.Sprintf("The sink takes nothing now: the gate of %s is %s%s.", w.fact, engine.Gate, r.Error)
		if p := w.info.Plugin; p.PID == 0 && p.LastExit != "" {
			r.Say += " The sink's process does not run; its last one ended with: " + line(p.LastExit, 200) + "."
		}
		if !engine.GateUntil.IsZero() {
			r.Until = stamp(engine.GateUntil)
			r.Say += " The next try is at " + r.Until + "."
		}
		do := "see that the destination can be reached and takes records; the worker tries again by itself"
		if engine.Gate == "quarantined" {
			do = "mend the sink, which dies on every record, and restart the daemon; or skip the record it dies on: connectd rows list --state dead"
		}
		e.add(r, do)
	}
	seqs := []int64{s.row.Seq}
	if s.queue.First != nil {
		seqs = append(seqs, s.queue.First.Seq)
	}
	for _, wait := range engine.Waits {
		if slices.Contains(seqs, wait.Seq) && wait.Until.After(s.queue.Now) {
			r := reason{Code: "destination_waits", Worker: &w.fact, Until: stamp(wait.Until), Error: &errorFact{wait.Code, wait.Message}}
			r.Say = fmt.Sprintf("Its destination is left alone until %s%s.", r.Until, r.Error)
			e.add(r, "see why the destination does not take records; it is tried again by itself")
			return
		}
	}
	if engine.MoreWaits {
		e.add(reason{Code: "destinations_wait", Worker: &w.fact, Say: fmt.Sprintf("Many destinations are left alone for a while, more than %s tells of; this row's may be one.", w.fact)}, "")
	}
}
