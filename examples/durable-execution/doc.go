// Package durableexecution is an example: run.sh tells how a run that must survive crashes gets its commands out, step by step,
// and where that goes wrong without care. The planner writes events and commands in one transaction; connectd relays the
// commands; the budget service takes each as often as it comes and carries it out once, with a receipt. The publisher is
// killed between the send and its note of it, a command is not cleaned up before its receipt, and in the end the books balance.
//
// docs/pitfalls.md explains each step.
package durableexecution
