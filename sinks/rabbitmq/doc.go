// Package rabbitmq is the sink that publishes records to RabbitMQ over AMQP 0-9-1. A record counts as delivered when the
// server has confirmed its message and has not returned it as unroutable. Messages are persistent and mandatory, keep the
// order of their key, and bear the record's id as their message-id.
//
// Some things that AMQP has are no settings. A message is always persistent and mandatory, and a key's order is always
// strict, since a sink that says delivered must not mean "lost at the next restart", "dropped, nobody was bound" or "before
// the one that failed". Its message-id is always the record's id, by which consumers dedupe. Copies by the headers CC and
// BCC are never made, because nothing tells whether they arrived. A user-id could be the login's name only. An OAuth 2 token
// is a password like any other. Sizes of frames and numbers of channels are the server's to say.
package rabbitmq
