// Package bench measures connectd as its users run it: the built program, a real SQLite file, sinks in processes of
// their own. `make bench` prints one table; docs/benchmarks.md says what each figure means.
package bench
