package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// printStatus writes the connectors, then why those wait that do, then the workers. Only the last column of a table is
// as long as it likes, so that the others stay in their places on a narrow terminal.
func (p *program) printStatus(list []connectorStatus) error {
	heading := []string{"CONNECTOR", "STATE", "LAG", "OLDEST", "RATE", "RETRIES", "DEAD", "HELD", "LEASES", "WORKERS"}
	var rows [][]string
	for _, s := range list {
		if s.State == unknown {
			rows = append(rows, []string{s.Name, s.State, "", "", "", "", "", "", "", ""})
			continue
		}
		lag, oldest := strconv.FormatInt(s.Lag.Rows, 10), "-"
		if s.Lag.AtLeast {
			lag += "+"
		}
		if s.Lag.Rows > 0 {
			oldest = span(seconds(s.Lag.OldestSeconds))
		}
		rows = append(rows, []string{
			s.Name, s.State, lag, oldest, strconv.FormatFloat(s.Rate, 'f', 1, 64) + "/s", strconv.FormatInt(s.Retries, 10),
			strconv.FormatInt(s.Dead, 10), strconv.FormatInt(s.Held, 10), fmt.Sprintf("%d/%d", s.Leases.Held, s.Leases.Partitions), s.crew(),
		})
	}
	if err := printTable(p.stdout, heading, rows); err != nil {
		return err
	}
	for i, s := range list {
		if s.Reason == "" {
			continue
		}
		if i == slices.IndexFunc(list, func(s connectorStatus) bool { return s.Reason != "" }) {
			fmt.Fprintln(p.stdout)
		}
		fmt.Fprintf(p.stdout, "%s %s: %s\n", s.Name, s.State, line(s.Reason, 400))
	}
	return p.printWorkers(list)
}

// crew counts the living workers, and the silent ones.
func (s connectorStatus) crew() string {
	living := 0
	for _, w := range s.Workers {
		if w.Alive {
			living++
		}
	}
	if silent := len(s.Workers) - living; silent > 0 {
		return fmt.Sprintf("%d, %d silent", living, silent)
	}
	return strconv.Itoa(living)
}

// printWorkers writes the workers of all connectors, if there are any.
func (p *program) printWorkers(list []connectorStatus) error {
	heading := []string{"CONNECTOR", "WORKER", "VERSION", "LEASES", "SEEN", "SINK", "NOTES"}
	var rows [][]string
	for _, s := range list {
		workers := slices.Clone(s.Workers)
		slices.SortFunc(workers, func(a, b workerStatus) int {
			return cmp.Or(cmp.Compare(a.silence(), b.silence()), cmp.Compare(a.name(), b.name()), cmp.Compare(a.Owner, b.Owner))
		})
		for _, w := range workers {
			rows = append(rows, []string{
				s.Name, w.name(), orDash(line(w.Published.Version, 24)), strconv.Itoa(w.Leases), span(seconds(w.AgeSeconds)) + " ago", w.sink(), w.notes(),
			})
		}
	}
	if rows == nil {
		return nil
	}
	fmt.Fprintln(p.stdout)
	return printTable(p.stdout, heading, rows)
}

// silence orders the living before the silent.
func (w workerStatus) silence() int {
	if w.Alive {
		return 0
	}
	return 1
}

// name is the worker's host and process, as people look for it.
func (w workerStatus) name() string {
	if w.Published.PID == 0 {
		return line(w.Owner, 64) // it has published nothing
	}
	return line(w.Published.Host, 40) + ":" + strconv.Itoa(w.Published.PID)
}

// sink is the worker's sink process and how long it has run.
func (w workerStatus) sink() string {
	switch state := w.Published.Plugin; {
	case !w.Alive:
		return "-"
	case state.PID > 0:
		// Its age now: the heartbeat is AgeSeconds old.
		return fmt.Sprintf("pid %d %s", state.PID, span(seconds(state.UptimeSeconds+w.AgeSeconds)))
	default:
		return orDash(line(state.State, 40))
	}
}

// notes are what is out of the ordinary with the worker.
func (w workerStatus) notes() string {
	var notes []string
	note := func(ok bool, format string, args ...any) {
		if ok {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	info := w.Published
	note(!w.Alive, "silent")
	note(w.Alive && info.Engine.Draining, "draining")
	note(w.Alive && info.Engine.Gate != "" && info.Engine.Gate != "open", "gate %s", line(info.Engine.Gate, 40))
	note(w.Alive && info.Engine.SourceError != "", "source fails")
	note(info.Plugin.Restarts > 0, "sink restarts %d", info.Plugin.Restarts)
	note(info.TakenOver > 0, "took over %d", info.TakenOver)
	note(info.Lost > 0, "lost %d", info.Lost)
	return strings.Join(notes, ", ")
}

func orDash(s string) string { return cmp.Or(s, "-") }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
