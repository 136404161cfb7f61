package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/kafka/producer"
)

// judge turns what became of messages into outcomes. It may be used concurrently.
type judge struct {
	// fixed says that all records go to one topic: what is wrong with that is wrong for all of them.
	fixed bool
	// hide replaces the settings' secrets in a text.
	hide func(string) string
}

// The codes of outcomes. The documentation says of each what to do.
const (
	codeAuthentication = "authentication"
	codeBehind         = "behind"
	codeConnection     = "connection"
	codeNoLeader       = "no_leader"
	codeNotAuthorized  = "not_authorized"
	codeNotReplicated  = "not_enough_replicas"
	codeRefused        = "refused"
	codeSequence       = "sequence"
	codeThrottled      = "throttled"
	codeTimeout        = "timeout"
	codeTooLarge       = "too_large"
	codeUnconfirmed    = "unconfirmed"
	codeUnknownTopic   = "unknown_topic"
)

// behind is the outcome of a record of which nothing was sent, and why.
func behind(why string) core.Outcome {
	return core.Outcome{Kind: core.NotAttempted, Code: codeBehind, Message: why}
}

// outcome is that of one record.
func (j *judge) outcome(r *producer.Result) core.Outcome {
	switch {
	case r.Err == nil:
		return core.Outcome{Kind: core.Delivered}
	case r.NotSent && r.Err.Class != producer.Sink: // what is about the sink is worth saying of each
		return behind(j.text(r.Err))
	default:
		return j.failure(r.Err)
	}
}

// failure is the outcome of a record that was not delivered for this reason.
func (j *judge) failure(e *producer.Error) core.Outcome {
	o := core.Outcome{Kind: core.Retryable, Unknown: e.Unknown, RetryAfter: e.RetryAfter, Code: code(e), Message: j.text(e)}
	switch e.Class {
	case producer.Permanent:
		if !e.Unknown { // else an earlier try may have been written
			o.Kind, o.RetryAfter = core.Permanent, 0
		}
	case producer.Throttled:
		if !e.Unknown {
			o.Kind = core.Throttled
		}
	case producer.UnknownTopic:
		o.Scope = j.topicScope()
	case producer.Sink:
		o.Scope = core.ScopeSink
		switch e.Code {
		case kafka.TopicAuthorizationFailed, kafka.PolicyViolation, kafka.UnsupportedForMessageFormat:
			o.Scope = j.topicScope()
		}
	default: // it is about a partition or its broker, never about the record
		o.Scope = core.ScopeKey
	}
	return o
}

// topicScope is how far what is wrong with a topic reaches.
func (j *judge) topicScope() core.Scope {
	if j.fixed {
		return core.ScopeSink
	}
	return core.ScopeKey
}

// call judges what became of a call's messages as a whole. When none was sent, what was in the way is why, so that
// somebody learns of it. When no broker answered about any of them, it is the sink that does not reach its destination, and
// no record is charged for that.
func (j *judge) call(results []producer.Result) []core.Outcome {
	outcomes := make([]core.Outcome, len(results))
	sent, answered := false, false
	for i := range results {
		sent = sent || !results[i].NotSent
	}
	for i := range results {
		r := &results[i]
		if outcomes[i] = j.outcome(r); !sent {
			outcomes[i] = j.failure(r.Err)
		}
		answered = answered || r.Err == nil || (!r.NotSent || !sent) && (r.Err.Code != 0 || r.Err.Class != producer.Retry)
	}
	for i := range outcomes {
		if o := &outcomes[i]; !answered && o.Kind == core.Retryable {
			o.Scope = core.ScopeSink
		}
	}
	return outcomes
}

// text is what an error says, fit for people.
func (j *judge) text(e *producer.Error) string { return core.CleanText(j.hide(e.Text)) }

// code is the stable word for a failure.
func code(e *producer.Error) string {
	switch e.Code {
	case 0:
		return codeWithoutAnswer(e)
	case kafka.UnknownTopicOrPartition, kafka.UnknownTopicID, kafka.InconsistentTopicID:
		return codeUnknownTopic
	case kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed, kafka.TransactionalIDAuthorizationFailed, kafka.BrokerAuthorizationFailed:
		return codeNotAuthorized
	case kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState, kafka.SecurityDisabled, kafka.SASLAuthenticationFailed:
		return codeAuthentication
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge:
		return codeTooLarge
	case kafka.LeaderNotAvailable, kafka.NotLeaderForPartition, kafka.BrokerNotAvailable, kafka.ReplicaNotAvailable, kafka.KafkaStorageError,
		kafka.ListenerNotFound, kafka.FencedLeaderEpoch, kafka.UnknownLeaderEpoch:
		return codeNoLeader
	case kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend:
		return codeNotReplicated
	case kafka.RequestTimedOut:
		return codeTimeout
	case kafka.NetworkException:
		return codeConnection
	case kafka.ThrottlingQuotaExceeded:
		return codeThrottled
	case kafka.InvalidTopic:
		return codeBadTopic
	case kafka.InvalidMessage, kafka.InvalidTimestamp, kafka.InvalidRecord, kafka.UnsupportedForMessageFormat, kafka.PolicyViolation:
		return codeRefused
	case kafka.OutOfOrderSequenceNumber, kafka.InvalidProducerEpoch, kafka.InvalidProducerIDMapping, kafka.UnknownProducerId, kafka.ProducerFenced:
		return codeSequence
	default:
		return fmt.Sprintf("kafka_%d", int(e.Code))
	}
}

// codeWithoutAnswer is the word for a failure that no broker has one for.
func codeWithoutAnswer(e *producer.Error) string {
	switch {
	case e.Class == producer.Permanent:
		return codeTooLarge
	case e.Class == producer.Throttled:
		return codeThrottled
	case e.Class == producer.UnknownTopic:
		return codeUnknownTopic
	case e.Unknown:
		return codeUnconfirmed
	case errors.Is(e, context.DeadlineExceeded):
		return codeTimeout
	default:
		return codeConnection
	}
}
