package plugins

import (
	"fmt"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins/proto"
)

// What a sink's words may weigh, in bytes.
const (
	maxCode    = 64
	maxMessage = 512
)

// maxRetryAfter bounds what a sink may ask for.
const maxRetryAfter = 7 * 24 * time.Hour

// toResponse lists what was not delivered. There must be one outcome for each record.
func toResponse(records int, outcomes []core.Outcome) (*proto.DeliverResponse, error) {
	if len(outcomes) != records {
		return nil, fmt.Errorf("the sink answered with %d outcomes for %d records", len(outcomes), records)
	}
	resp := &proto.DeliverResponse{}
	for i := range outcomes {
		o := &outcomes[i]
		if o.Kind == core.Delivered {
			resp.Delivered++
			if o.Completed {
				resp.Completed = append(resp.Completed, uint32(i))
			}
			continue
		}
		resp.Exceptions = append(resp.Exceptions, &proto.Exception{
			Index:        uint32(i),
			Outcome:      toOutcome(o.Kind),
			Scope:        toScope(o.Scope),
			Unknown:      o.Unknown,
			RetryAfterMs: uint64(max(0, min(o.RetryAfter, maxRetryAfter)).Milliseconds()),
			Code:         Printable(o.Code, maxCode),
			Message:      Printable(o.Message, maxMessage),
		})
	}
	return resp, nil
}

// fromResponse is the answer for each record. Anything that does not add up makes the whole answer an error: a record
// counts as delivered only because the sink's own count says so.
func fromResponse(records int, resp *proto.DeliverResponse) ([]core.Outcome, error) {
	if int64(resp.GetDelivered())+int64(len(resp.GetExceptions())) != int64(records) {
		return nil, fmt.Errorf("the answer does not add up: %d delivered and %d exceptions for %d records",
			resp.GetDelivered(), len(resp.GetExceptions()), records)
	}
	outcomes := make([]core.Outcome, records)
	for i := range outcomes {
		outcomes[i].Kind = core.Delivered
	}
	for _, e := range resp.GetExceptions() {
		if int64(e.GetIndex()) >= int64(records) {
			return nil, fmt.Errorf("the answer names record %d of %d", e.GetIndex(), records)
		}
		o := &outcomes[e.GetIndex()]
		if o.Kind != core.Delivered {
			return nil, fmt.Errorf("the answer names record %d twice", e.GetIndex())
		}
		*o = fromException(e) // never Delivered
	}
	for _, i := range resp.GetCompleted() {
		if int64(i) >= int64(records) || outcomes[i].Kind != core.Delivered || outcomes[i].Completed {
			return nil, fmt.Errorf("the answer calls record %d of %d completed, which is not delivered or was named before", i, records)
		}
		outcomes[i].Completed = true
	}
	return outcomes, nil
}

func fromException(e *proto.Exception) core.Outcome {
	return core.Outcome{
		Kind:       fromOutcome(e.GetOutcome()),
		Scope:      fromScope(e.GetScope()),
		Unknown:    e.GetUnknown(),
		RetryAfter: time.Duration(min(e.GetRetryAfterMs(), uint64(maxRetryAfter.Milliseconds()))) * time.Millisecond,
		Code:       Printable(e.GetCode(), maxCode),
		Message:    Printable(e.GetMessage(), maxMessage),
	}
}

func toOutcome(k core.OutcomeKind) proto.Outcome {
	switch k {
	case core.Retryable:
		return proto.Outcome_OUTCOME_RETRYABLE
	case core.Permanent:
		return proto.Outcome_OUTCOME_PERMANENT
	case core.Throttled:
		return proto.Outcome_OUTCOME_THROTTLED
	case core.NotAttempted:
		return proto.Outcome_OUTCOME_NOT_ATTEMPTED
	default:
		return proto.Outcome_OUTCOME_UNSPECIFIED
	}
}

func fromOutcome(o proto.Outcome) core.OutcomeKind {
	switch o {
	case proto.Outcome_OUTCOME_RETRYABLE:
		return core.Retryable
	case proto.Outcome_OUTCOME_PERMANENT:
		return core.Permanent
	case proto.Outcome_OUTCOME_THROTTLED:
		return core.Throttled
	case proto.Outcome_OUTCOME_NOT_ATTEMPTED:
		return core.NotAttempted
	default:
		return core.Unspecified
	}
}

func toScope(s core.Scope) proto.Scope {
	switch s {
	case core.ScopeRecord:
		return proto.Scope_SCOPE_RECORD
	case core.ScopeKey:
		return proto.Scope_SCOPE_KEY
	case core.ScopeSink:
		return proto.Scope_SCOPE_SINK
	default:
		return proto.Scope_SCOPE_UNSPECIFIED
	}
}

func fromScope(s proto.Scope) core.Scope {
	switch s {
	case proto.Scope_SCOPE_RECORD:
		return core.ScopeRecord
	case proto.Scope_SCOPE_KEY:
		return core.ScopeKey
	case proto.Scope_SCOPE_SINK:
		return core.ScopeSink
	default:
		return core.ScopeDefault
	}
}
