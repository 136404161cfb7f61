package core

import "time"

// QueueBound is where a source stops looking at the rows before another one: an answer must come quickly, however many
// rows wait.
const QueueBound = 10_000

// Queue is what a pending row waits behind in its partition.
type Queue struct {
	// Now is the database's clock, by which the times in the table are meant.
	Now time.Time
	// Sent is the announcement that names the row; nil when none does.
	Sent *Sent
	// Before counts the pending rows of the partition with a lower seq; it stops at QueueBound.
	Before int
	// First is the earliest row that holds the row back because it has the same key. Of each state only the first QueueBound rows of the
	// partition are looked at.
	First *RowInfo
}

// Sent is when a row was announced for sending, and under which epoch of its partition's lease.
type Sent struct {
	At    time.Time
	Epoch int64
}

// Trace is what the tables beside the outbox know of an id.
type Trace struct {
	// Receipts are at most MaxHistory of the id's, in the order of their consumers' names, with the place of its row.
	Receipts []Receipt
	// Cleaned is how many rows of the outbox table connectd has deleted since it was initialised, whatever their ids.
	Cleaned int64
}

// Interrupted is the message in the history of a row that was on its way when its partition changed hands. worker is the
// lease's last owner, empty if it had given the lease back; sent, when it announced the row, by the database's clock.
func Interrupted(worker string, sent time.Time) string {
	at := sent.UTC().Format("2006-01-02T15:04:05.000Z")
	if worker == "" {
		return "a worker began to send it at " + at + " and left before an answer was stored"
	}
	return CleanText("worker " + worker + " began to send it at " + at + " and lost its lease before an answer was stored")
}
