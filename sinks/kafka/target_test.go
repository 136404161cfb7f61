package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// told is a broker that answers what it was told to.
type told struct {
	topic   metadata.ResponseTopic
	configs map[string]string // nil: they may not be read
}

func (b told) Ask(_ context.Context, request protocol.Message) (protocol.Message, error) {
	switch r := request.(type) {
	case *metadata.Request:
		if r.AllowAutoTopicCreation || !r.IncludeTopicAuthorizedOperations {
			return nil, fmt.Errorf("%+v", r)
		}
		b.topic.Name = r.TopicNames[0]
		return &metadata.Response{Topics: []metadata.ResponseTopic{b.topic}}, nil
	case *describeconfigs.Request:
		if b.configs == nil {
			return &describeconfigs.Response{Resources: []describeconfigs.ResponseResource{{ErrorCode: int16(kafka.TopicAuthorizationFailed)}}}, nil
		}
		var resource describeconfigs.ResponseResource
		for name, value := range b.configs {
			resource.ConfigEntries = append(resource.ConfigEntries, describeconfigs.ResponseConfigEntry{ConfigName: name, ConfigValue: value})
		}
		return &describeconfigs.Response{Resources: []describeconfigs.ResponseResource{resource}}, nil
	}
	return nil, errors.New("no such request")
}

// TestTarget looks at topics in every state: what stops all records, and what is worth saying.
func TestTarget(t *testing.T) {
	partition := func(leader, inSync, replicas int) metadata.ResponsePartition {
		return metadata.ResponsePartition{LeaderID: int32(leader), IsrNodes: make([]int32, inSync), ReplicaNodes: make([]int32, replicas)}
	}
	configs := func(minInSync string) map[string]string {
		return map[string]string{"min.insync.replicas": minInSync, "max.message.bytes": "1048588"}
	}
	const all, reads = 0b1111_1111_1000, 0b1_0000_1000 // Read and Describe
	for name, test := range map[string]struct {
		broker  told
		one     bool // acks
		trouble string
		advice  string
	}{
		"fine":            {told{metadata.ResponseTopic{TopicAuthorizedOperations: all, Partitions: []metadata.ResponsePartition{partition(1, 3, 3)}}, configs("2")}, false, "", ""},
		"missing":         {told{metadata.ResponseTopic{ErrorCode: 3}, nil}, false, "does not exist", ""},
		"unseen":          {told{metadata.ResponseTopic{ErrorCode: 29}, nil}, false, "not even be seen", ""},
		"bad name":        {told{metadata.ResponseTopic{ErrorCode: 17}, nil}, false, "Invalid Topic", ""},
		"read only":       {told{metadata.ResponseTopic{TopicAuthorizedOperations: reads, Partitions: []metadata.ResponsePartition{partition(1, 1, 1)}}, nil}, false, "not be written to", ""},
		"unsaid":          {told{metadata.ResponseTopic{TopicAuthorizedOperations: -1 << 31, Partitions: []metadata.ResponsePartition{partition(1, 1, 1)}}, nil}, false, "", ""},
		"old broker":      {told{metadata.ResponseTopic{Partitions: []metadata.ResponsePartition{partition(1, 1, 1)}}, nil}, false, "", ""},
		"no leader":       {told{metadata.ResponseTopic{Partitions: []metadata.ResponsePartition{partition(-1, 0, 3), partition(-1, 1, 3)}}, nil}, false, "has a leader", ""},
		"one leader":      {told{metadata.ResponseTopic{Partitions: []metadata.ResponsePartition{partition(-1, 0, 3), partition(2, 3, 3)}}, configs("2")}, false, "", ""},
		"never in sync":   {told{metadata.ResponseTopic{Partitions: []metadata.ResponsePartition{partition(1, 1, 1)}}, configs("2")}, false, "refuse every record", ""},
		"not in sync":     {told{metadata.ResponseTopic{Partitions: []metadata.ResponsePartition{partition(1, 1, 3)}}, configs("2")}, false, "2 replicas in sync now", ""},
		"acks one":        {told{metadata.ResponseTopic{Partitions: []metadata.ResponsePartition{partition(1, 1, 3)}}, configs("2")}, true, "", ""},
		"leader alone":    {told{metadata.ResponseTopic{Partitions: []metadata.ResponsePartition{partition(1, 3, 3)}}, configs("1")}, false, "", "min.insync.replicas is 1"},
		"a single broker": {told{metadata.ResponseTopic{Partitions: []metadata.ResponsePartition{partition(1, 1, 1)}}, configs("1")}, false, "", ""},
		"small batches": {told{metadata.ResponseTopic{Partitions: []metadata.ResponsePartition{partition(1, 1, 1)}}, map[string]string{"max.message.bytes": "1000"}},
			false, "", "takes batches of 1000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			seen, err := look(t.Context(), test.broker, "orders")
			var advice []string
			if err == nil {
				err = seen.trouble(!test.one)
				advice = seen.advice(!test.one, 1020<<10)
			}
			if text := fmt.Sprint(err); (err != nil) != (test.trouble != "") || !strings.Contains(text, test.trouble) || err != nil && !strings.Contains(text, `"orders"`) {
				t.Errorf("trouble %v, want %q", err, test.trouble)
			}
			if text := strings.Join(advice, "; "); (text != "") != (test.advice != "") || !strings.Contains(text, test.advice) {
				t.Errorf("advice %q, want %q", text, test.advice)
			}
		})
	}
}
