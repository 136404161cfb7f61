package main

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/connectd/connectd/cmd/connectd/daemon"
	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/core"
)

// explanation says why a row is where it is. Its JSON is a contract, described in docs/operating.md.
type explanation struct {
	Connector string   `json:"connector,omitempty"`
	ID        string   `json:"id"`
	Seq       int64    `json:"seq,omitempty"`
	Partition *int     `json:"partition,omitempty"`
	State     string   `json:"state"`
	Because   []reason `json:"because"`      // what must be seen to first comes first
	Do        string   `json:"do,omitempty"` // what a person can do, if anything
}

// add appends a reason, and what to do about it unless an earlier one has a remedy.
func (e *explanation) add(r reason, do string) {
	e.Because = append(e.Because, r)
	if e.Do == "" {
		e.Do = do
	}
}

// has says whether a reason of this code is there.
func (e *explanation) has(code string) bool {
	return slices.ContainsFunc(e.Because, func(r reason) bool { return r.Code == code })
}

// reason is one fact that keeps a row where it is. Code is for programs, Say for people; the other fields are there when
// they have to do with it.
type reason struct {
	Code    string       `json:"code"`
	Say     string       `json:"say"`
	Since   string       `json:"since,omitempty"`
	Until   string       `json:"until,omitempty"`
	Send    int          `json:"send,omitempty"` // the number of the send that this is about
	Row     *rowFact     `json:"row,omitempty"`
	Worker  *workerFact  `json:"worker,omitempty"`
	Error   *errorFact   `json:"error,omitempty"`
	Crashes int          `json:"crashes,omitempty"`
	By      string       `json:"by,omitempty"`   // who changed the row
	Rows    int64        `json:"rows,omitempty"` // how many
	AtLeast bool         `json:"at_least,omitempty"`
	Holder  string       `json:"holder,omitempty"` // whose transaction
	Receipt *receiptFact `json:"receipt,omitempty"`
}

// rowFact is another row.
type rowFact struct {
	Seq   int64  `json:"seq"`
	ID    string `json:"id"`
	State string `json:"state"`
}

// workerFact is a worker, with what its last heartbeat said.
type workerFact struct {
	Owner        string   `json:"owner"`
	Host         string   `json:"host,omitempty"`
	PID          int      `json:"pid,omitempty"`
	Version      string   `json:"version,omitempty"`
	HeardSeconds *float64 `json:"heard_seconds,omitempty"` // since its last heartbeat; absent: it has none
}

// errorFact is what went wrong with a send.
type errorFact struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// receiptFact is a consumer's receipt.
type receiptFact struct {
	Consumer string `json:"consumer"`
	Status   string `json:"status"`
	Result   string `json:"result,omitempty"`
	At       string `json:"at"`
}

// heartbeat is a worker as its last heartbeat shows it.
type heartbeat struct {
	fact workerFact
	info daemon.Info
	age  time.Duration
}

// heartbeats are the workers of a table. What another version published and cannot be read is left out.
func heartbeats(workers []core.WorkerInfo) []heartbeat {
	var list []heartbeat
	for _, w := range workers {
		h := heartbeat{age: w.Age.Abs()} // as Live has it
		if info, err := daemon.ParseInfo(w.Info); err == nil {
			h.info = info
		}
		heard := w.Age.Seconds()
		h.fact = workerFact{w.Owner, h.info.Host, h.info.PID, h.info.Version, &heard}
		list = append(list, h)
	}
	return list
}

// String names the worker, and where its process is to be found.
func (w workerFact) String() string {
	s := "worker " + line(w.Owner, 64)
	if w.PID == 0 {
		return s
	}
	s += " (pid " + strconv.Itoa(w.PID) + " of " + line(w.Host, 64)
	if w.Version != "" {
		s += ", connectd " + line(w.Version, 32)
	}
	return s + ")"
}

func aboutRow(r core.RowInfo) *rowFact { return &rowFact{r.Seq, r.ID, stateText(r)} }

// lastEntry is the newest line of a row's history.
func lastEntry(history []core.Attempt) (core.Attempt, bool) {
	if len(history) == 0 {
		return core.Attempt{}, false
	}
	return history[len(history)-1], true
}

// lastError is what the row's last failure was, nil for none: from its history, or from its column.
func lastError(f found) *errorFact {
	for i := len(f.history) - 1; i >= 0; i-- {
		if a := f.history[i]; !rowwork.ByPerson(a) {
			return &errorFact{a.Code, a.Message}
		}
	}
	if f.row.LastError == "" {
		return nil
	}
	return &errorFact{Message: f.row.LastError}
}

// String writes it behind a colon, "" for none.
func (e *errorFact) String() string {
	switch {
	case e == nil || e.Code == "" && e.Message == "":
		return ""
	case e.Code == "" || strings.HasPrefix(e.Message, e.Code):
		return ": " + line(e.Message, core.MaxErrorText)
	case e.Message == "":
		return ": " + line(e.Code, 64)
	default:
		return ": " + line(e.Code, 64) + ": " + line(e.Message, core.MaxErrorText)
	}
}

// at writes a moment behind the word, "" for none.
func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " at " + stamp(t)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

func sends(n int) string {
	if n == 1 {
		return "1 send"
	}
	return strconv.Itoa(n) + " sends known or possible"
}

// argument writes an id as a word of a command that may be copied into a shell.
func argument(id string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@+="
	switch {
	case strings.HasPrefix(id, "-") || line(id, len(id)+1) != id:
		return "- (and its id on standard input)"
	case id != "" && strings.Trim(id, plain) == "":
		return id
	default:
		return "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
	}
}
