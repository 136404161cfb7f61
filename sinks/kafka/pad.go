package kafka

import "github.com/connectd/connectd/sinks/kafka/producer"

// pad is the memory of one batch's messages: a few large pieces in place of many small ones. What was taken from it stays
// as it is when more is taken. It is not for concurrent use.
type pad struct {
	bytes    []byte
	headers  []producer.Header
	messages []producer.Message
}

// Sizes of new pieces, some hundreds of records' worth.
const (
	bytesPiece    = 64 << 10
	headersPiece  = 4 << 10
	messagesPiece = 256
)

// message is a new one.
func (p *pad) message() *producer.Message {
	if len(p.messages) == cap(p.messages) {
		p.messages = make([]producer.Message, 0, messagesPiece)
	}
	p.messages = append(p.messages, producer.Message{})
	return &p.messages[len(p.messages)-1]
}

// text is a copy of s; of "" an empty slice, which is not nil.
func (p *pad) text(s string) []byte {
	if cap(p.bytes)-len(p.bytes) < len(s) || p.bytes == nil {
		p.bytes = make([]byte, 0, max(bytesPiece, len(s)))
	}
	start := len(p.bytes)
	p.bytes = append(p.bytes, s...)
	return p.bytes[start:len(p.bytes):len(p.bytes)]
}

// mark begins a message's headers, of which there will be about n.
func (p *pad) mark(n int) int {
	if cap(p.headers)-len(p.headers) < n {
		p.headers = make([]producer.Header, 0, max(headersPiece, n))
	}
	return len(p.headers)
}

// header adds one.
func (p *pad) header(name, value string) {
	p.headers = append(p.headers, producer.Header{Name: name, Value: p.text(value)})
}

// since is what has been added since the mark.
func (p *pad) since(mark int) []producer.Header {
	return p.headers[mark:len(p.headers):len(p.headers)]
}
