// Package engine is the leasing engine: it moves the rows of one source to one sink, at least once and in order per key,
// and survives what dies around it. It is written once for every source and every sink.
//
// # How it is built
//
// A machine (machine.go) holds all rules and has no clock, no goroutine and no I/O: it is told what happened and says what
// to do. A Connector gives it those: one loop (run.go) that alone touches the machine, and a goroutine for every call of
// the source or the sink (calls.go), each with a deadline. The simulation in the tests runs the same machine in a world of
// its own, where every kind of failure happens and a seed replays it; TestEveryRuleIsNeeded switches the rules below off
// one at a time and shows what breaks.
//
//	leases.go     take, renew, share, hand over
//	group.go      which partitions share a call of the source
//	partition.go  a partition's memory, and the keys that wait
//	room.go       how much it may have
//	read.go       reading into it, the floor
//	pick.go       which rows go together
//	batch.go      a batch's stages, and when it may be sent
//	step.go       the transaction that settles and announces; repeating it
//	judge.go      from outcomes to settlements
//	valve.go      the connector's sink gate
//	troubles.go   what fails at the source
//	losses.go     what the log says of rows that need a person
//	standstill.go whether this process stood still
//	gate.go       the process's send gate
//
// # Leases
//
// Deadlines are computed and compared by the database's clock. The worker keeps a local deadline as well, from the start of
// its last confirmed renewal and a margin earlier, and sends nothing after it. A lease that ran out is not lost until
// somebody takes it: at the local deadline, or when the fence refuses, the worker cancels its calls, sends nothing and asks by
// a renewal. If that finds the lease, it goes on with what it knows; if not, it drops the partition and reports
// lease_not_owned.
//
// Live workers share a table's partitions evenly, rounded up. A worker above its share for two heartbeats hands the excess
// over: it stops reading, waits for its calls, settles, releases. A worker takes free and expired partitions up to its share.
// It has three heartbeats in each lease and counts as gone after two thirds of one without, so that within a lease of a worker's
// end its leases have run out and the others' shares have grown. Heartbeats, renewals and looks for leases are jittered, and one that
// has its share does not look: workers that begin together, or meet at a dead one's leases, do not stay together.
//
// # Reading
//
// A partition has one reading position. Every pending, committed row at or below it is in memory, or is not due, or its key is
// "behind". Rows of a key that is behind are dropped as they are read (and excluded in the read, so that they cannot fill it).
// A key gets behind by a row that is not due, by a row that blocks it (held; dead under on_dead: block), or by having its share
// of memory. It leaves behind only together with the reading position going back to the start: then all its rows come again, in
// order. That happens after an acquisition, every minute, when a key that waits may go on, and when a person changed rows.
// The blocked keys are read before the rows, never after, and only rows above a key's lowest blocking row are blocked.
//
// Rows may commit late, with a seq below the position. So each read begins at the floor, in the same snapshot as what follows:
// the floor is a position noted before all transactions that ran then had ended (core.Horizon).
//
// A read names the rows in memory and does not get them again. A settlement may commit while a read is under way, and a row just
// settled must not come back with its old numbers.
//
// # Announce, deliver, settle
//
// Nothing is sent before its announcement is known to have committed. A step whose outcome is unknown is repeated unchanged until
// it is known or the lease is gone, for the first copy may still run. A batch whose announcement was repeated leaves an emptied
// inflight row behind instead of none, so that a late copy of the announcement inserts nothing. Settlements have absolute values
// and a guard: the row is pending and its deliveries are what memory says.
//
// A call of unknown outcome (it failed, timed out, was cancelled) is written down like any other: deliveries rises, so the next
// send knows of this one.
//
// # Several partitions a call
//
// All rules are a partition's own; only the calls of the source carry several. A read and a step of few rows cost about the same
// for one partition as for sixty-four, and thousands of them a second slow down whoever else uses the database. So at most two of
// each kind run at a time, and what becomes ready meanwhile goes together in the next. Idle partitions, whose polls come due within
// half a pause of one another, are read together. A partition that fills a call by itself has calls of its own, eight of a kind;
// so has one whose read begins at the start and has keys that wait to pass over, for that may take long, again and again.
//
// A group that the fence refused has written nothing, and nobody knows which lease it was: each partition tries alone, at once. That
// is no repeat, and only one that is refused alone is in doubt. After an unknown outcome each partition repeats its own change,
// alone: copies of it may come in any company and order, since a group's changes have nothing to do with each other. So it is with a
// read that failed. A partition whose calls hang, because somebody keeps a lock, holds up those in the same call for that
// call's deadline, once; after that they go on without it until it succeeds alone.
//
// # Rows that come back
//
// An operator gives dead and held rows back one by one, in their order, and a page may have one of them while another of its key,
// given back before, is not there: its place had been read before the change, or the page was to pass over it as a row in memory
// that the worker's own settlement has stopped meanwhile. So each page tells what operators had changed in its snapshot. Where
// that is news since the reading from the start began, rows that were sent before wait with their keys for the next one. What was
// seen waiting in the one before is taken, even if there is news again: whatever came back before it was there when this one
// began. So rows go on while operators give back without end, and rows that were never sent do not wait for that at all. The
// heartbeat tells of changes that no page shows.
//
// # Two kinds of failure
//
// Outcomes are about records and count attempts. Failed calls, throttling, and outcomes of sink scope are about the sink: they count
// nothing and close the sink gate, with backoff of its own. Batches in a row in which nothing is delivered close it too,
// three or as many as make 256 records (a sink may prefer single records, of which some in a row may be bad without an outage), if
// no outcome has the scope of a key, which says that other keys may go on; probes then begin with one record and double. An outage
// buries nothing. When whole calls fail, nobody knows for which record;
// the rows of a failed call go in ever smaller company, and after three such calls alone and after a pause of their own, until an
// answer clears them. So a record that makes every call fail holds up its key and stops no other. It is given up like one that is
// refused, after give_up_after, but only if others were delivered all that time: an outage is no proof.
//
// # Poison
//
// A record may kill the worker, kill the sink's process, or hang. Who is in flight when that happens gets a crash; an answer about the
// row sets crashes back to 0. Rows at two crashes are sent carefully, at most 32 together; from three on, alone. A careful batch has
// the process's send gate for itself, from before its announcement until its settlement is confirmed: whatever dies meanwhile died of
// it. So an innocent row stops at three and is delivered, and a killer is dead after six. A timeout counts only when the sink's Health
// answered before and after it, and when this process has not stood still meanwhile (standstill.go): one that was stopped,
// or slept or was paused with its machine, wakes to deadlines that prove nothing. (A careful batch whose lease is in doubt past its local deadline gives the gate back, lest a database
// that is away stops every connector; if the lease is revived, a death in that time may count one crash too many.) After a burial the next one needs a delivery in between; else the connector is quarantined, since it
// may be the sink that dies on everything. Between two careful batches a normal one has its turn, so many suspects that take their
// time do not stop the table; and where only suspects and rows that fail their calls are left, they probe a closed gate by turns.
//
// # What is not promised
//
// A paused process may send, once, a batch it announced before it lost the lease, unmarked and after later records of its key; and a
// cancelled call may take effect late. Order is that of producers whose transactions on one key do not overlap. deliveries may exceed
// the true number of sends, never fall below it.
package engine
