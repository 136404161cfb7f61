// Package producer writes messages to Kafka so that each one's fate is known: written at an offset, refused for good, not
// written yet, or unknown.
//
// It stands on github.com/segmentio/kafka-go: its messages of the protocol (rawproduce.Request, metadata.Request and so
// on), its protocol.Conn, its codecs and its SASL mechanisms. Two things above them it does itself. kafka.Writer is not
// used because a batch that it sends again may come behind its successors. kafka.Transport is not used because it asks for
// leaders by a timer and never because of an error, opens a connection for each request that waits, keeps the TLS
// configuration it began with, and does not say whether a request was sent before it failed.
//
// # The way of a message
//
// Produce finds the message's partition by the hash that Java's client uses and puts it into that partition's lane. A lane
// has one batch on its way and sends the same bytes until the broker has said yes or no; what comes in the meantime, from
// any call, waits and goes together in the next batch. So the order of a partition is the order of the calls, whatever
// fails. Batches that wait for the same broker go in one request.
//
// A broker's no is of three kinds. What passes (no leader, too few replicas, a lost connection) is tried again, after the
// leader was asked for anew, until the calls of the batch have left. What is about a message makes that message Permanent:
// the broker names it, or the batch is halved until it is found; the rest goes on, but for messages of the same key and
// call behind it. What is about the client (credentials, permissions, no broker at all for some seconds) fails all that
// waits in the lane, with class Sink.
//
// # When nobody knows
//
// A request that was sent and not answered may be written, now or later. While the call lasts the batch is sent again; in
// idempotent mode the broker knows it by its numbers and writes it once. When the call's time is up first, its messages
// are Unknown. The lane's numbers then begin again in a higher epoch of its producer id, and from that epoch's first batch
// on the broker refuses everything of the one before: what the network still holds cannot come behind what is written
// later. Each lane has an id of its own, so that its epochs are nobody else's affair.
//
// A broker knows a batch again for as long as it remembers the producer. Apache Kafka forgets one when its latest message, by
// the message's own time, is older than producer.id.expiration.ms, a day by default: it looks when it starts, and now and
// then while it runs. (Where the topic has the time of writing instead, that counts.) So a batch older than half a day is
// sent once in a call: when nobody knows whether it is written, its messages are Unknown at once. The higher epoch keeps
// late copies of it away only until the broker forgets that too. Brokers with a shorter producer.id.expiration.ms may write
// younger batches twice, and nothing says so.
//
// Without idempotence a batch that was sent again may be in the log twice, and a late copy may come behind its
// successors.
package producer
