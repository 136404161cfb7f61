// Package chaos breaks everything that a fleet of daemons needs while producers write, and then proves that nothing was
// lost. Real daemons of the built program share an outbox table; a schedule made from a seed kills, stops and restarts
// them, their sinks' processes and their servers, and breaks the connections between each pair. A checker of its own then
// reads what the producers know, what is in the table and what arrived, and asks the relay nothing.
//
// What is promised, and checked, is in laws. It rests on two things that an application must do too:
//
//   - Producers serialise a key: the next transaction with a key begins when the last one has ended. One whose commit got
//     no answer may still end, so its keys are never used again.
//   - Rows are kept after they were published, so that the table says at the end which of those transactions committed.
//
// `make chaos` runs every pair of a source and a sink for CHAOS each and writes docs/faults.md; `make test` runs some for
// a few seconds. The seed is printed; with -chaos.seed, and the same time and pairs, the same accidents happen in the
// same order at the same times. What they hit at those times is the machine's affair, so a failure may need several tries.
//
// Clocks are not skewed: deadlines are computed by the database's clock alone, and a program's clock cannot be set
// apart from its machine's without root.
package chaos
