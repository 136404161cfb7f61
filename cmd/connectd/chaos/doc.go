// Package chaos breaks everything that a fleet of daemons needs while producers write, and then proves that nothing was
// lost. Real daemons of the built program share an outbox table; a schedule made from a seed kills, stops and restarts
// them, their sinks' processes and their servers, breaks the connections between each pair, fills disks, and lets the
// database's clock jump. A checker of its own then reads what the producers know, what is in the table and what arrived,
// and asks the relay nothing.
//
// What is promised, and checked, is in laws. It rests on two things that an application must do too:
//
//   - Producers serialise a key: the next transaction with a key begins when the last one has ended. One whose commit got
//     no answer may still end, so its keys are never used again.
//   - Rows are kept after they were published, so that the table says at the end which of those transactions committed.
//
// What arrives is read by consumers of the harness: of a topic by another client library than the sink's, of a queue with
// acknowledgements, by an HTTP server, of a file. They stand beside the proxies through which the sinks go.
//
// `make chaos` runs every pair of a source and a sink for CHAOS each and writes docs/faults.md; `make test` runs some for
// a few seconds. The seed is printed; with -chaos.seed, and the same time and pairs, the same accidents are due in the
// same order at the same times. Each waits until what it breaks is whole, and what they hit is the machine's affair, so a
// failure may need several tries.
//
// A takeover is judged when nothing but a kill can make it long. Every calmEvery a daemon is therefore killed while
// everything else is whole.
//
// Clocks: PostgreSQL and MariaDB are ten minutes apart from the daemons in some pairs, and jump while it runs. A jump forward
// past every lease lets leases run out under living daemons: it costs repeats, as a kill does. A jump back costs time: a
// dead daemon's lease lasts longer by it, and a row in backoff waits so much longer. MySQL becomes too slow under the library
// that does this, and SQLite has the clock of the daemons' machine, which cannot be set apart for a program without
// root. Producers write created_at up to ten minutes off, either way.
package chaos
