package layout

import (
	"context"
	"slices"
	"time"

	"github.com/connectd/connectd/core"
)

// Receipt is a stored receipt and how long ago it came.
type Receipt struct {
	core.Receipt
	Age time.Duration
}

// Place is where a row is, and for how long it has been cleaned.
type Place struct {
	Row   core.RowPlace
	Since time.Duration
}

// Places are those of commands' rows.
type Places map[string]Place

// NewPlaces knows of no row yet.
func NewPlaces(commands []string) Places {
	p := make(Places, len(commands))
	for _, id := range commands {
		p[id] = Place{Row: core.RowUnknown}
	}
	return p
}

// Found notes where a row is. What was found first counts: sources look at the table first. A row that nobody asked for is
// left out, since a column's collation may find one whose id has other letters.
func (p Places) Found(id string, row core.RowPlace, since time.Duration) {
	if p[id].Row == core.RowUnknown {
		p[id] = Place{row, since}
	}
}

// Unknown are the commands whose rows are not found yet.
func (p Places) Unknown() []string {
	var unknown []string
	for id, place := range p {
		if place.Row == core.RowUnknown {
			unknown = append(unknown, id)
		}
	}
	return unknown
}

// Receipts are stored receipts in the order of their keys.
type Receipts []Receipt

// Plain is the receipts without their ages.
func (l Receipts) Plain() []core.Receipt {
	list := make([]core.Receipt, len(l))
	for i := range l {
		list[i] = l[i].Receipt
	}
	return list
}

// ReceiptsOf reads the receipts of one command, to the letter: a database may take names for equal that differ. No command has an
// empty id, which as a filter asks for all.
func ReceiptsOf(ctx context.Context, id string, read func(context.Context, core.ReceiptFilter) ([]core.Receipt, error)) ([]core.Receipt, error) {
	if id == "" {
		return nil, nil
	}
	list, err := read(ctx, core.ReceiptFilter{Command: id, Limit: core.MaxHistory})
	return slices.DeleteFunc(list, func(r core.Receipt) bool { return r.Command != id }), err
}

// Put tells each receipt where its row is.
func (l Receipts) Put(places Places) {
	for i := range l {
		l[i].Row = places[l[i].Command].Row
	}
}

// Due says which receipts have outlived their retention, by the places of their rows, and what else a cleaner tells of them.
// Those of another table's rows are for its cleaner.
func (l Receipts) Due(places Places, retention time.Duration) (map[core.RowPlace][]core.Receipt, core.CleanedReceipts) {
	c := core.CleanedReceipts{Removed: map[core.RowPlace]int{}, Looked: len(l)}
	due := map[core.RowPlace][]core.Receipt{}
	for _, r := range l {
		c.Last = r.Key()
		age := r.Age
		if r.Row == core.RowCleaned {
			age = min(age, places[r.Command].Since)
		}
		switch {
		case r.Row == core.RowThere || r.Row == core.RowElsewhere:
		case retention >= 0 && age >= retention:
			due[r.Row] = append(due[r.Row], r.Receipt)
		case r.Row == core.RowUnknown:
			c.Unknown = append(c.Unknown, r.Receipt)
		}
	}
	return due, c
}
