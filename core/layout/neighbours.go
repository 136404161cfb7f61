package layout

import (
	"errors"

	"github.com/connectd/connectd/core"
)

// Neighbour is another outbox table that shares the receipts.
type Neighbour struct {
	Table string
	ID    string // its id column; "" when init has not noted it
}

// Unread is the error about an outbox table that shares the receipts and cannot be read.
type Unread struct{ Table, Why string }

func (u Unread) Error() string { return u.Table + " (" + u.Why + ")" }

// Check is an Unread when it is not known which the id column is.
func (n Neighbour) Check() error {
	if n.ID == "" {
		return Unread{n.Table, "connectd_outbox does not name its id column"}
	}
	return nil
}

// Elsewhere looks in the others for the commands whose rows are not found yet; find notes those that one of them has or has
// cleaned. When one cannot be read, what is not found may be there.
func (p Places) Elsewhere(others []Neighbour, find func(n Neighbour, found Places, commands []string) error) error {
	for _, n := range others {
		unknown := p.Unknown()
		if len(unknown) == 0 {
			return nil
		}
		found := NewPlaces(unknown)
		err := find(n, found, unknown)
		unread := errors.As(err, new(Unread))
		if err != nil && !unread {
			return err
		}
		for id, place := range found {
			if unread || place.Row != core.RowUnknown {
				p.Found(id, core.RowElsewhere, 0)
			}
		}
	}
	return nil
}

// AddOthers adds the ids of the others; entries gives those of one of them.
func (q *AuditSQL) AddOthers(others []Neighbour, entries func(n Neighbour) ([]string, error)) error {
	q.Others, q.Unread = nil, nil
	for _, n := range others {
		some, err := entries(n)
		var unread Unread
		switch {
		case errors.As(err, &unread):
			q.Unread = append(q.Unread, unread)
		case err != nil:
			return err
		default:
			q.Others = append(q.Others, some...)
		}
	}
	return nil
}
