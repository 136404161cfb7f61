//go:build linux

package chaos

import "time"

// history is all that the checker looks at.
type history struct {
	facts      []fact
	rows       map[string]row     // the table at the end, by id
	announced  []string           // batches that are still announced at the end
	attempts   map[int64][]string // the rows' histories, by seq
	receptions []reception        // in the order in which the destination took them
	accidents  []accident
	takeovers  []takeover
	late       []lateness
	fleet      limits
}

// ending is how a producer's transaction ended, as far as the producer knows.
type ending string

const (
	committed  ending = "committed"
	rolledBack ending = "rolled back"
	unknown    ending = "unknown" // the commit was sent and not answered: the table tells
)

// fact is what a producer knows of one row: a line of the truth log.
type fact struct {
	Transaction int       `json:"transaction"`
	ID          string    `json:"id"`
	Key         string    `json:"key"` // "": the row has none
	N           int       `json:"n"`   // rises along the key
	Poison      string    `json:"poison,omitempty"`
	End         ending    `json:"end"`
	At          time.Time `json:"at"`
}

// What is wrong with one row in a hundred, and with very few. Such rows end dead and never arrive. All but the first are
// the rows' types, and some destinations know no other way to tell.
const (
	unreadable = "unreadable"       // its headers are no JSON object, so there is no record to send
	refused    = "refused/on-sight" // the destination will not have it
	tooLarge   = "too large"        // it is more than the destination takes
	crashing   = "crashing"         // it ends the sink's process
	hanging    = "hanging"          // it hangs the sink's process
)

// row is a row of the outbox table.
type row struct {
	seq                           int64
	id, state                     string
	attempts, deliveries, crashes int
	lastError                     string
}

// reception is a record as the destination took it.
type reception struct {
	ID       string
	Key      string // "": none
	N        int    // of the payload
	Delivery int    // the send's own number
	Marked   bool   // as a possible duplicate
	Epoch    int64
	At       time.Time
}

// limits bound what is on its way, and for how long.
type limits struct {
	daemons  int
	inFlight int           // batches of one daemon
	records  int           // rows of a batch
	lease    time.Duration // of a partition
	poll     time.Duration // between two looks for partitions that are free
	call     time.Duration // of the sink
	shares   bool          // several daemons can have leases at once
}

// batch is how many rows one daemon may have on their way.
func (l limits) batch() int { return l.inFlight * l.records }

// linger is how long after an accident a row may still be sent again because of it: its call runs out, then the lease.
func (l limits) linger() time.Duration { return l.call + 2*l.lease }
