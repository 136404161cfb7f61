package producer

import (
	"context"

	"github.com/segmentio/kafka-go/protocol"
)

// Ask sends a request to whichever broker answers, for what the producer does not need to know itself. The error is an
// *Error.
func (p *Producer) Ask(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	ctx, leave := p.enter(ctx, true)
	if leave == nil {
		return nil, closedError()
	}
	defer leave()
	response, err := p.askAny(ctx, request)
	if err != nil {
		return nil, err
	}
	return response, nil
}
