// Package rabbitmq is the sink that publishes records to RabbitMQ over AMQP 0-9-1. A record counts as delivered when the
// server has confirmed its message and has not returned it as unroutable. Messages are persistent and mandatory, keep the
// order of their key, and bear the record's id as their message-id.
//
// Four things that AMQP has are no settings. A message is always persistent and always mandatory, since a sink that says
// delivered must not mean "lost at the next restart" or "dropped, nobody was bound". Its message-id is always the record's
// id, by which consumers dedupe. Copies by the headers CC and BCC are never made, because nothing tells whether they
// arrived.
package rabbitmq
