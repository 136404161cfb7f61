package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// asker sends a request to a broker, whichever answers.
type asker interface {
	Ask(ctx context.Context, request protocol.Message) (protocol.Message, error)
}

// target is the one topic that all records go to, as a broker sees it.
type target struct {
	name      string
	forbidden bool // the broker says that it may not be written to
	replicas  int  // of the partition that has the fewest
	leaders   int  // partitions that have a leader
	writable  int  // those that have enough replicas in sync too
	// The topic's settings; zero when they may not be read.
	minInSync       int // min.insync.replicas
	maxMessageBytes int // max.message.bytes, of a batch
}

// errNoTopic is wrapped by the error of a topic that does not exist.
var errNoTopic = errors.New("does not exist")

// look asks about a topic. It creates none.
func look(ctx context.Context, broker asker, name string) (*target, error) {
	answer, err := broker.Ask(ctx, &metadata.Request{TopicNames: []string{name}, IncludeTopicAuthorizedOperations: true})
	if err != nil {
		return nil, fmt.Errorf("ask for topic %q: %w", name, err)
	}
	topics := answer.(*metadata.Response).Topics
	if len(topics) != 1 {
		return nil, fmt.Errorf("ask for topic %q: the broker told of %d topics", name, len(topics))
	}
	switch code := kafka.Error(topics[0].ErrorCode); code {
	case 0:
	case kafka.UnknownTopicOrPartition:
		return nil, fmt.Errorf("topic %q %w: create it, correct the setting topic, or set create_topics", name, errNoTopic)
	case kafka.TopicAuthorizationFailed:
		return nil, fmt.Errorf("topic %q may not even be seen: give the user the rights (ACL) Describe and Write on it", name)
	default:
		return nil, fmt.Errorf("topic %q: %w", name, code)
	}
	t := &target{name: name, forbidden: forbidden(topics[0].TopicAuthorizedOperations)}
	t.configure(ctx, broker)
	t.count(topics[0].Partitions)
	return t, nil
}

// forbidden reads the set of what may be done with a topic, which has a bit for each code of
// org.apache.kafka.common.acl.AclOperation. Old brokers do not say.
func forbidden(operations int32) bool {
	const write, unsaid = 1 << 4, -1 << 31
	return operations != 0 && operations != unsaid && operations&write == 0
}

// configure reads what may be read of the topic's settings. They are for advice, so it is no error when none may.
func (t *target) configure(ctx context.Context, broker asker) {
	const topic = 2 // org.apache.kafka.common.config.ConfigResource.Type
	answer, err := broker.Ask(ctx, &describeconfigs.Request{Resources: []describeconfigs.RequestResource{
		{ResourceType: topic, ResourceName: t.name, ConfigNames: []string{"min.insync.replicas", "max.message.bytes"}},
	}})
	if err != nil {
		return
	}
	for _, resource := range answer.(*describeconfigs.Response).Resources {
		for _, entry := range resource.ConfigEntries {
			switch number, _ := strconv.Atoi(entry.ConfigValue); entry.ConfigName {
			case "min.insync.replicas":
				t.minInSync = number
			case "max.message.bytes":
				t.maxMessageBytes = number
			}
		}
	}
}

func (t *target) count(partitions []metadata.ResponsePartition) {
	for i := range partitions {
		p := &partitions[i]
		if n := len(p.ReplicaNodes); i == 0 || n < t.replicas {
			t.replicas = n
		}
		if p.LeaderID < 0 {
			continue
		}
		t.leaders++
		if len(p.IsrNodes) >= t.minInSync {
			t.writable++
		}
	}
}

// trouble says why no record can be written now, nil if some can. all: a write waits for all replicas in sync.
func (t *target) trouble(all bool) error {
	switch {
	case t.forbidden:
		return fmt.Errorf("topic %q may not be written to: give the user the right (ACL) Write on it", t.name)
	case t.leaders == 0:
		return fmt.Errorf("no partition of topic %q has a leader now: look at the brokers", t.name)
	case all && t.minInSync > t.replicas:
		return fmt.Errorf("topic %q has %d replicas and min.insync.replicas is %d: the brokers refuse every record; "+
			"lower that, or add replicas", t.name, t.replicas, t.minInSync)
	case all && t.writable == 0:
		return fmt.Errorf("no partition of topic %q has %d replicas in sync now, as its min.insync.replicas wants: look at the brokers",
			t.name, t.minInSync)
	}
	return nil
}

// advice says what works and is worth a thought. batch is the largest batch that is sent, in bytes.
func (t *target) advice(all bool, batch int) []string {
	var advice []string
	if all && t.minInSync == 1 && t.replicas > 1 {
		advice = append(advice, fmt.Sprintf("topic %q has %d replicas and min.insync.replicas is 1: while its leader alone is in sync, "+
			"a record counts as delivered that nobody else has; 2 is the usual choice", t.name, t.replicas))
	}
	if t.maxMessageBytes > 0 && t.maxMessageBytes < batch {
		advice = append(advice, fmt.Sprintf("topic %q takes batches of %d bytes (its max.message.bytes) and max_batch_bytes is %d: "+
			"larger ones are refused and sent again in parts; let max_batch_bytes be no more", t.name, t.maxMessageBytes, batch))
	}
	return advice
}
