package publisher

import amqp "github.com/rabbitmq/amqp091-go"

// Message is one message and where it goes.
type Message struct {
	// Lane chooses the channel: a hash of the key, so that the key keeps to one. Without a key any number does.
	Lane uint64
	// Key is the ordering key, if Keyed; the empty key is one too.
	Key   string
	Keyed bool

	Exchange   string // "" is the default exchange, which takes RoutingKey for the name of a queue
	RoutingKey string
	// Mandatory makes a message that no queue takes fail with KindReturned. Without it such a message is lost, and counts as
	// delivered.
	Mandatory  bool
	Publishing amqp.Publishing
}

// Result is what became of a message.
type Result struct {
	// Err is nil for a message that the broker has confirmed and not returned.
	Err *Error
}
