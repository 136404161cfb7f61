// Package postgres is the source of an outbox table in a PostgreSQL database, version 13 or later, directly or through
// a pooler in transaction mode.
//
// # The tables
//
// A new table has its order from an identity column and its partition from a generated one. A table that is there is
// adopted without being rewritten: new columns have constant defaults, its order comes from a sequence of ours, and the
// partition is an expression that an index holds. Both come to the same for everything else. The tables beside it
// (connectd_lease and so on) are in its schema.
//
// Two indexes are the relay's: pending rows by partition and place, and dead and held rows. They have only such rows,
// so what is kept costs no fetch anything. The price is that publishing a row that is kept changes what an index is
// about, so the new version of the row goes into the other indexes as well (about 330 bytes of log a row of 500, where
// the pages have some room; a new table has fillfactor 85 for that). Without the condition on the state it would be a
// third of that, but each reading from the start, one a minute, would walk through all that is kept. Deleting at once
// is cheapest: some 60 bytes.
//
// # How it works with the server
//
// A lease is a row in connectd_lease. It is written when it is acquired, renewed and given back, never for a batch: a
// step locks it and reads it. A step is one statement behind that fence, so one transaction and one round trip, in
// which every part asks first whether the fence let it through. It is the same statement for one partition as for many, and so
// is a fetch: the partitions are lists of parameters. Steps and renewals lock leases in the order of the partitions, and
// acquiring passes over those that are locked, so they cannot wait for each other in a circle. Acquiring is several statements in a transaction that
// is READ COMMITTED, since the inflight rows must be read by one that begins when the lease is locked.
//
// Statements do not depend on statistics, which for an outbox table are always of another time: a fetch has one index
// that fits it, and so has a step; lists are parameters, looked up and never joined.
//
// Times are the server's, as timestamps with time zone, read after any wait. Rows may commit late, with a number below
// one that was read: a page tells by marks (see horizon) which transactions its snapshot could not see yet.
//
// A transaction that the server ends for the sake of another is run again, and so is a statement whose plan or
// description is no longer valid; nothing else is. A server that turns read-only loses all connections, and new ones
// are made only to one that takes writes.
//
// # Waking up
//
// New rows are found by polling: one look for all partitions, often after there were some, seldom in silence. NOTIFY is
// quicker when it is quiet, and the producers pay for it (see Notify). A listener has a connection of its own, proves
// once a minute that a NOTIFY comes back, and when none does, as behind a pooler, it says so and polling goes on as
// without it.
//
// # Commit order
//
// Rows of one key go in the order of their numbers, provided that the producers' transactions of a key do not overlap.
// With Config.CommitOrder it holds for overlapping ones too: a row waits until all transactions have ended that could
// have drawn a lower number, which are those that held a RowExclusiveLock on the table when the row's number had been
// drawn. Every INSERT takes that lock before it draws, and its transaction keeps it to the end, so the order is exact,
// whatever triggers do meanwhile. The price is that one long transaction that has written to the outbox table holds up all
// rows that come after (see HeldBack), also when what it did there was an UPDATE or a DELETE; the relay's own are short.
// What is written to other tables holds up nothing. Each look that finds new numbers reads all locks of the server: with a
// thousand of them that is half a millisecond more for a fetch. A producer that takes numbers in advance, before its
// INSERT begins, is not helped by it, nor one that writes numbers of its own.
package postgres
