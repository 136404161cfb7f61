// Package core is the vocabulary that every part of connectd shares: records and rows, sources and sinks, leases and
// settlements. It has no behaviour worth the name and imports the standard library only.
//
// # A row's way
//
// An application inserts a row into its outbox table in the same transaction as the facts it belongs to. The row is
// pending. From there:
//
//  1. A worker (one daemon process) acquires a lease on the row's partition: Source.Acquire. Rows that an earlier owner
//     had announced and not settled are marked in the same transaction: they may have been sent.
//  2. The engine reads pending rows of its partitions in seq order into memory: Source.Fetch. Reading claims nothing; the
//     lease is the claim.
//  3. It makes batches of rows of one partition. A key is in one batch at a time.
//  4. It announces a batch: Source.Step writes an inflight row that names the batch's seqs, under the fence of the lease.
//     Only when that has committed is anything sent. So at any moment the table names every row that may have been sent
//     and is not settled.
//  5. Sink.Deliver carries the batch to the sink, which is a process of its own; the answer has one Outcome for each record.
//  6. The engine turns outcomes into settlements, and the next Source.Step writes them and removes the inflight row, again
//     under the fence, and in the same transaction announces what goes next. Published, dead and held rows leave memory.
//
// Nothing else moves. Two arrows point backwards, and both are return values: the outcomes and the commit. The order of
// effects is: the sink confirms, the row is settled, memory is freed. A crash anywhere repeats rows and loses none; the
// repetition bears a mark, Record.PossibleDuplicate.
//
// Package engine has the rules, package memory both ends in memory, packages sources/... and sinks/... the real ones;
// package layout is what the sources share.
package core
