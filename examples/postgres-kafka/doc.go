// Package postgreskafka is an example: run.sh shows an application with an outbox in PostgreSQL whose commands connectd
// writes to topics of Apache Kafka, in order for each customer. The daemon is killed when it has sent commands and not yet
// written that down. They are sent again, marked, and the consumer, which dedupes by their id, counts each once.
package postgreskafka
