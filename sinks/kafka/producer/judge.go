package producer

import (
	"fmt"

	"github.com/segmentio/kafka-go"
)

// step is what follows a try.
type step uint8

const (
	stepAgain       step = iota // the same bytes, after a pause
	stepFindLeader              // and ask first who leads
	stepRenumber                // the same messages under new numbers
	stepTakeApart               // without the culprits, or in halves
	stepFail                    // it is of no use
	stepForgettable             // it may be written, and the broker may not know it again
	stepWritten
	stepLeft // nobody waits for it any more
)

// verdict is what a try has shown.
type verdict struct {
	step     step
	err      *Error // why it is not written
	unknown  bool   // it may be
	offset   int64
	culprits map[int]*Error // by place in the batch; nil when the broker did not say
	tooLarge bool
}

// judge says what an answer means for the batch.
func (l *lane) judge(b *batch, a answer, leader *broker) verdict {
	if a.err != nil {
		err := *a.err
		v := verdict{step: stepFindLeader, err: &err, unknown: b.unknown || a.sent}
		if err.Class == Sink {
			v.step = stepFail
		}
		return v
	}
	if a.code == 0 || a.code == kafka.DuplicateSequenceNumber {
		return verdict{step: stepWritten, offset: a.offset}
	}
	v := verdict{unknown: b.unknown, err: &Error{Code: a.code, Text: l.text(a, leader)}}
	switch a.code {
	case kafka.NotEnoughReplicas, kafka.BrokerNotAvailable:
		// Refused before anything was written.
		v.step = stepAgain
	case kafka.UnknownTopicOrPartition, kafka.LeaderNotAvailable, kafka.NotLeaderForPartition, kafka.ReplicaNotAvailable,
		kafka.NetworkException, kafka.KafkaStorageError, kafka.ListenerNotFound, kafka.FencedLeaderEpoch,
		kafka.UnknownLeaderEpoch, kafka.UnknownTopicID, kafka.InconsistentTopicID:
		// A leader says these also when it lost its place after it wrote the batch, while it waited for the others.
		v.step, v.unknown = stepFindLeader, true
	case kafka.ThrottlingQuotaExceeded:
		v.step, v.err.Class, v.err.RetryAfter = stepFail, Throttled, max(leader.mutedFor(), l.p.cfg.BackoffMax)
	case kafka.OutOfOrderSequenceNumber:
		// The broker does not have the batch before this one: it lost it. So it has not this one.
		v.step, v.unknown = stepRenumber, false
	case kafka.UnknownProducerId:
		// The broker has forgotten this producer, and with it whether it has the batch. Since Kafka 2.5 it takes the batch instead.
		v.step = stepRenumber
		if v.unknown {
			v.step = stepFail
		}
	case kafka.InvalidProducerEpoch, producerFenced:
		// Somebody uses a higher epoch of this lane's id. Nobody should.
		l.next = numbering{id: noID}
		v.step = stepRenumber
		if v.unknown {
			v.step = stepFail // under another id the broker would not know it again
		}
	case kafka.InvalidMessage:
		// Damaged on its way, perhaps. The second time it is the message.
		v.step = stepAgain
		if b.damaged {
			l.blame(b, a, &v)
		}
		b.damaged = true
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidTimestamp, invalidRecord,
		kafka.InvalidTopic:
		l.blame(b, a, &v)
	case kafka.InvalidRequiredAcks, kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed,
		kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState, kafka.UnsupportedVersion, kafka.PolicyViolation,
		kafka.TransactionalIDAuthorizationFailed, kafka.SASLAuthenticationFailed, kafka.UnsupportedForMessageFormat, unsupportedCompression:
		v.step, v.err.Class = stepFail, Sink
	default:
		// RequestTimedOut and NotEnoughReplicasAfterAppend: the leader has it. Unknown, and what we have never heard of.
		v.step, v.unknown = stepAgain, true
	}
	return v
}

// The codes that kafka-go does not name or names late.
const (
	invalidRecord          kafka.Error = 87
	producerFenced         kafka.Error = 90
	unsupportedCompression kafka.Error = 76
)

// blame says which messages of a refused batch are to blame: those the broker lists, or the only one, or the whole topic's.
func (l *lane) blame(b *batch, a answer, v *verdict) {
	v.step = stepTakeApart
	v.tooLarge = a.code == kafka.MessageSizeTooLarge || a.code == kafka.RecordListTooLarge
	permanent := func(detail string) *Error {
		err := *v.err
		err.Class, err.Unknown = Permanent, b.unknown
		if detail != "" {
			err.Text += ": " + detail
		}
		return &err
	}
	culprits := map[int]*Error{}
	for _, r := range a.records {
		if r.index >= 0 && r.index < len(b.entries) {
			culprits[r.index] = permanent(r.text)
		}
	}
	if len(b.entries) == 1 && len(culprits) == 0 || a.code == kafka.InvalidTopic {
		for i := range b.entries {
			culprits[i] = permanent("")
		}
	}
	if len(culprits) > 0 {
		v.culprits = culprits
	}
}

// text is the sentence for an answer.
func (l *lane) text(a answer, leader *broker) string {
	text := fmt.Sprintf("broker %s, topic %q, partition %d: %v", leader.addr, l.topic.name, l.partition, a.code)
	if a.text != "" {
		text += ": " + a.text
	}
	if advice := advice(a.code); advice != "" {
		text += "; " + advice
	}
	return text
}

// advice is what to do about a code, where somebody has to.
func advice(code kafka.Error) string {
	switch code {
	case kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend:
		return "fewer replicas are in sync than the topic's min.insync.replicas"
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge:
		return "raise the topic's max.message.bytes, or send less"
	case kafka.InvalidTimestamp:
		return "the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms bound what it takes"
	case kafka.TopicAuthorizationFailed:
		return "grant this client Write and Describe on the topic"
	case kafka.ClusterAuthorizationFailed:
		return "grant this client IdempotentWrite on the cluster"
	case kafka.UnknownTopicOrPartition:
		return "create the topic, or correct its name"
	case kafka.SASLAuthenticationFailed:
		return "correct the user name or the password"
	case kafka.UnsupportedSASLMechanism:
		return "use a mechanism that the broker has enabled"
	case kafka.UnsupportedForMessageFormat:
		return "the topic's message.format.version is too old for what is sent; raise it"
	case unsupportedCompression:
		return "choose another compression"
	default:
		return ""
	}
}

func sizeText(size, limit int) string {
	return fmt.Sprintf("the message takes %d bytes in a batch of its own and may take %d", size, limit)
}
