// Package mysqlrabbitmq is an example: run.sh shows an application with an outbox in MySQL whose commands connectd publishes
// to a quorum queue of RabbitMQ. One that no queue takes becomes dead, with its reason, and is sent when there is a binding.
// Consumer and daemon are killed in the middle; the consumer, which dedupes by the message's id, handles each command once.
package mysqlrabbitmq
