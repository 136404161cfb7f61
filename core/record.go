package core

import "time"

// State is what the outbox row's state column says.
type State string

// The states of a row. Only Pending rows are sent. Published, Skipped and Dead are ends, though an operator may
// turn Dead back into Pending; Held waits for an operator. (A pending row named by an inflight row is shown as
// "sending"; that is a view, not a state.)
const (
	Pending   State = "pending"
	Published State = "published"
	Dead      State = "dead"
	Held      State = "held"
	Skipped   State = "skipped"
)

// Header is one name and value that travels with a record.
type Header struct {
	Name, Value string
}

// Record is one outbox row on its way to a sink. Sources make it, nobody changes it after that; a sink may read it,
// its payload and its headers until Deliver returns and must copy what it keeps.
type Record struct {
	// ID is the command's id: unique, stable, the same on every attempt and every transport. Consumers dedupe by it.
	ID string
	// Key is the ordering key. Keyed is false when the column is NULL: such a record has no order.
	Key   string
	Keyed bool
	// Route is what routes (topic, routing key, URL), Type the event or command type. Both may be empty.
	Route string
	Type  string
	// Payload is the column byte for byte; never re-encoded. Nil is NULL, which is not the same as empty.
	Payload []byte
	// Headers in the order of the row's JSON object.
	Headers []Header
	// CreatedAt is the database's time of the insert, UTC; zero when the row has none.
	CreatedAt time.Time

	// Seq is the row's place in its table's order.
	Seq int64
	// Deliveries is this send's own number, from 1: one more than the sends known or possible before it.
	Deliveries int
	// Epoch is the fencing number of the lease under which this send was announced. It rises when a partition
	// changes hands, so a consumer can tell a late send of a former owner from the present one's.
	Epoch int64
}

// PossibleDuplicate says that the record may have been sent before.
func (r *Record) PossibleDuplicate() bool { return r.Deliveries > 1 }

// Header returns the value of the first header of that name.
func (r *Record) Header(name string) (string, bool) {
	for _, h := range r.Headers {
		if h.Name == name {
			return h.Value, true
		}
	}
	return "", false
}

// Size is the record's weight in batches and budgets, in bytes.
func (r *Record) Size() int {
	n := len(r.ID) + len(r.Key) + len(r.Route) + len(r.Type) + len(r.Payload) + 64
	for _, h := range r.Headers {
		n += len(h.Name) + len(h.Value) + 8
	}
	return n
}

// Row is a pending outbox row as a source read it: the record and the relay's own columns.
type Row struct {
	// Record without Deliveries and Epoch, which the engine fills in for each send.
	Record Record
	// Deliveries is the column: sends known or possible so far. Every relay write raises it by one, which makes
	// it the row's version number.
	Deliveries int
	// Attempts counts failures towards the limits.
	Attempts int
	// Crashes counts how often, since its last answer, the row was in flight when its worker or plugin died or
	// its call hung.
	Crashes int
	// Wait is available_at minus the database's now; zero or less means due.
	Wait time.Duration
	// Failing is the time since the first failure counted in Attempts, by the database's clock; zero without one.
	Failing time.Duration
	// Invalid says, if not empty, why the row cannot be made into a record (headers that are no JSON object, an
	// id that is NULL, text that is no UTF-8). Such a row is buried with this reason and never sent; Record then
	// holds what could be read.
	Invalid string
}
