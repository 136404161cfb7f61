package core

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Receipt is a consumer's word that it has done what a command says, or failed at it. It comes from the consumer itself
// or with a sink's outcome (Outcome.Completed). There is one for each command
// and consumer. The first that is done is final; any other is no completion. One that is done takes the place of any other,
// one that failed only that of another that failed.
type Receipt struct {
	Command  string // the row's id
	Consumer string // may be empty
	Status   ReceiptStatus
	// ResultRef says where the result is, in the consumer's words; may be empty.
	ResultRef string
	// At is when it was stored, by the database's clock. Row is what is known of the command's row. Whoever saves a
	// receipt sets neither.
	At  time.Time
	Row RowPlace
}

// ReceiptStatus is what a receipt says. Whoever saves one says done or failed. Tables that are older than their check of
// this column may have other texts, which are no completion.
type ReceiptStatus string

// The statuses of a receipt.
const (
	ReceiptDone   ReceiptStatus = "done"
	ReceiptFailed ReceiptStatus = "failed"
	// ReceiptStarted is left by an effect that ended its transaction itself (package inbox): nobody knows how much of it
	// there is, and the command must not be run again until a person has looked.
	ReceiptStarted ReceiptStatus = "started"
)

// Replaces says whether the receipt takes the place of one with that status.
func (r Receipt) Replaces(status ReceiptStatus) bool {
	return status != ReceiptDone && (r.Status == ReceiptDone || status == ReceiptFailed)
}

// RowPlace is where the row of a receipt is.
type RowPlace string

// What is known of a receipt's row. A row that was cleaned before its receipt came is unknown: ids of rows are kept
// only as long as they have a receipt.
const (
	RowThere   RowPlace = "there"
	RowCleaned RowPlace = "cleaned"
	RowUnknown RowPlace = "unknown"
	// RowElsewhere: another outbox table of the database has the row or cleaned it, or may have it and cannot be read.
	RowElsewhere RowPlace = "elsewhere"
)

// Bounds of what a receipt says, and of how many are taken at once.
const (
	MaxReceiptName = 255  // characters of a command's id and of a consumer's name
	MaxResultRef   = 1024 // characters
	MaxReceipts    = 1000
)

// Check says why a receipt cannot be stored.
func (r Receipt) Check() error {
	if r.Command == "" {
		return errors.New("the command's id is missing")
	}
	if r.Status != ReceiptDone && r.Status != ReceiptFailed {
		return fmt.Errorf("the status is %.40q, and must be done or failed", r.Status)
	}
	for _, f := range []struct{ name, text string }{{"the command's id", r.Command}, {"the consumer's name", r.Consumer}, {"the result's reference", r.ResultRef}} {
		if !utf8.ValidString(f.text) || strings.ContainsRune(f.text, 0) {
			return errors.New(f.name + " is not UTF-8 text without NUL")
		}
	}
	switch {
	case utf8.RuneCountInString(r.Command) > MaxReceiptName:
		return fmt.Errorf("the command's id has more than %d characters", MaxReceiptName)
	case utf8.RuneCountInString(r.Consumer) > MaxReceiptName:
		return fmt.Errorf("the consumer's name has more than %d characters", MaxReceiptName)
	case utf8.RuneCountInString(r.ResultRef) > MaxResultRef:
		return fmt.Errorf("the result's reference has more than %d characters", MaxResultRef)
	}
	return nil
}

// ReceiptKey orders receipts.
type ReceiptKey struct{ Command, Consumer string }

// Key is what there is one receipt of.
func (r Receipt) Key() ReceiptKey { return ReceiptKey{r.Command, r.Consumer} }

// ReceiptAnswer is what became of a receipt.
type ReceiptAnswer string

// The answers to a receipt.
const (
	ReceiptStored   ReceiptAnswer = "stored"
	ReceiptRepeated ReceiptAnswer = "repeated" // one that is done was there: that one counts
	ReceiptUnknown  ReceiptAnswer = "unknown"  // stored, or there, and no outbox table of the database has such a row
	ReceiptRefused  ReceiptAnswer = "refused"  // not stored
)

// ReceiptResult is the answer to one receipt.
type ReceiptResult struct {
	Answer  ReceiptAnswer
	Receipt Receipt // as it is stored; what came when it was refused
	Why     string  // of an unknown and a refused one
}

// ReceiptFilter selects receipts to list; zero fields do not restrict.
type ReceiptFilter struct {
	Command string
	After   ReceiptKey // for paging
	Limit   int        // 0: 100
}

// ReceiptCall is one call that saves receipts.
type ReceiptCall struct {
	list    []Receipt
	refused []error // by place in the list
	// Write are the receipts to store, one of each key, in the order of the keys: in that order two calls never wait
	// for each other in a circle.
	Write []Receipt
}

// NewReceiptCall checks receipts and folds those of one key: what comes twice in one statement is an error to
// databases. fits says what else the database cannot store; it may be nil.
func NewReceiptCall(list []Receipt, fits func(Receipt) error) *ReceiptCall {
	c := &ReceiptCall{list: list, refused: make([]error, len(list))}
	last := map[ReceiptKey]Receipt{}
	for i, r := range list {
		err := r.Check()
		if i >= MaxReceipts {
			err = fmt.Errorf("one call takes %d receipts", MaxReceipts)
		}
		if err == nil && fits != nil {
			err = fits(r)
		}
		if err != nil {
			c.refused[i] = err
			continue
		}
		if before, is := last[r.Key()]; !is || before.Status != ReceiptDone {
			last[r.Key()] = r
		}
	}
	for _, r := range last {
		c.Write = append(c.Write, r)
	}
	slices.SortFunc(c.Write, func(a, b Receipt) int {
		return cmp.Or(cmp.Compare(a.Command, b.Command), cmp.Compare(a.Consumer, b.Consumer))
	})
	return c
}

// Commands are the ids of what is written, each once, in order.
func (c *ReceiptCall) Commands() []string { return ReceiptCommands(c.Write) }

// ReceiptCommands are the ids of receipts that are in the order of their keys, each once.
func ReceiptCommands(list []Receipt) []string {
	ids := make([]string, len(list))
	for i, r := range list {
		ids[i] = r.Command
	}
	return slices.Compact(ids)
}

// NoSuchRow is why a receipt is unknown.
const NoSuchRow = "no outbox table of the database has a row with this id: none was ever there, or it was cleaned before a receipt came"

// takenForAnother is why a receipt is refused by a table whose text is compared without the blanks at its end, and which is
// older than its check that no name ends so.
const takenForAnother = "the database has a receipt whose command or consumer differs only in blanks at its end, and takes this one for it: delete that one"

// whyNot says why a receipt that the call did not write is no repeat.
func whyNot(stored Receipt, there bool) string {
	switch {
	case !there:
		return takenForAnother
	case stored.Status != ReceiptDone:
		return fmt.Sprintf("there is a receipt with the status %.40q, whose place only done takes: see how much of the command was done, then send done, or delete that receipt", stored.Status)
	}
	return ""
}

// Answers gives the answer to each receipt of the call. stored are the receipts as the database has them now, written
// those that this call wrote.
func (c *ReceiptCall) Answers(stored map[ReceiptKey]Receipt, written map[ReceiptKey]bool) []ReceiptResult {
	results := make([]ReceiptResult, len(c.list))
	done := map[ReceiptKey]bool{}
	for i, r := range c.list {
		if err := c.refused[i]; err != nil {
			results[i] = ReceiptResult{Answer: ReceiptRefused, Receipt: r, Why: err.Error()}
			continue
		}
		key := r.Key()
		is, there := stored[key]
		if why := whyNot(is, there); why != "" && !written[key] {
			results[i] = ReceiptResult{Answer: ReceiptRefused, Receipt: r, Why: why}
			continue
		}
		a := ReceiptResult{Answer: ReceiptStored, Receipt: is}
		if !written[key] || done[key] {
			a.Answer = ReceiptRepeated
		}
		if a.Receipt.Row == RowUnknown {
			a.Answer, a.Why = ReceiptUnknown, NoSuchRow
		}
		done[key] = done[key] || r.Status == ReceiptDone
		results[i] = a
	}
	return results
}
