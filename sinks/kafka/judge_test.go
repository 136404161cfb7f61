package kafka

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/kafka/producer"
)

func judging(fixed bool) *judge {
	return &judge{fixed: fixed, hide: func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }}
}

// verdict is an outcome as the tests write it.
func verdict(o core.Outcome) string {
	text := o.Kind.String()
	if o.Scope != core.ScopeDefault {
		text += " " + o.Scope.String()
	}
	if o.Unknown {
		text += " unknown"
	}
	if o.RetryAfter > 0 {
		text += " after " + o.RetryAfter.String()
	}
	return text + " " + o.Code
}

// TestOutcomes has a row for each failure: in a call where others were answered, to one topic and to those of the rows.
func TestOutcomes(t *testing.T) {
	of := func(class producer.Class, code kafka.Error) producer.Error {
		return producer.Error{Class: class, Code: code}
	}
	unknown := func(e producer.Error) producer.Error { e.Unknown = true; return e }
	for _, test := range []struct {
		err         producer.Error
		one, topics string // topics is "" when it is the same
	}{
		// the topic
		{of(producer.UnknownTopic, kafka.UnknownTopicOrPartition), "retryable sink unknown_topic", "retryable key unknown_topic"},
		{of(producer.UnknownTopic, 0), "retryable sink unknown_topic", "retryable key unknown_topic"},
		{of(producer.Permanent, kafka.UnknownTopicOrPartition), "permanent unknown_topic", ""}, // the time of grace is over
		{of(producer.Sink, kafka.TopicAuthorizationFailed), "retryable sink not_authorized", "retryable key not_authorized"},
		{of(producer.Permanent, kafka.InvalidTopic), "permanent bad_topic", ""},
		{of(producer.Sink, kafka.UnsupportedForMessageFormat), "retryable sink refused", "retryable key refused"},
		{of(producer.Sink, kafka.PolicyViolation), "retryable sink refused", "retryable key refused"},

		// all of the cluster
		{of(producer.Sink, 0), "retryable sink connection", ""},
		{unknown(of(producer.Sink, 0)), "retryable sink unknown unconfirmed", ""},
		{of(producer.Sink, kafka.ClusterAuthorizationFailed), "retryable sink not_authorized", ""},
		{of(producer.Sink, kafka.SASLAuthenticationFailed), "retryable sink authentication", ""},
		{of(producer.Sink, kafka.UnsupportedSASLMechanism), "retryable sink authentication", ""},
		{of(producer.Sink, kafka.UnsupportedVersion), "retryable sink kafka_35", ""},
		{of(producer.Sink, kafka.UnsupportedCompressionType), "retryable sink kafka_76", ""},

		// a partition, its leader
		{of(producer.Retry, kafka.LeaderNotAvailable), "retryable key no_leader", ""},
		{of(producer.Retry, kafka.NotLeaderForPartition), "retryable key no_leader", ""},
		{of(producer.Retry, kafka.KafkaStorageError), "retryable key no_leader", ""},
		{of(producer.Retry, kafka.FencedLeaderEpoch), "retryable key no_leader", ""},
		{of(producer.Retry, kafka.NotEnoughReplicas), "retryable key not_enough_replicas", ""},
		{unknown(of(producer.Retry, kafka.NotEnoughReplicasAfterAppend)), "retryable key unknown not_enough_replicas", ""},
		{unknown(of(producer.Retry, kafka.RequestTimedOut)), "retryable key unknown timeout", ""},
		{of(producer.Retry, kafka.NetworkException), "retryable key connection", ""},
		{of(producer.Retry, 0), "retryable key connection", ""},
		{unknown(of(producer.Retry, 0)), "retryable key unknown unconfirmed", ""},
		{producer.Error{Err: fmt.Errorf("wait: %w", context.DeadlineExceeded)}, "retryable key timeout", ""},
		{of(producer.Retry, kafka.OutOfOrderSequenceNumber), "retryable key sequence", ""},
		{of(producer.Retry, kafka.Error(200)), "retryable key kafka_200", ""},

		// less
		{producer.Error{Class: producer.Throttled, Code: kafka.ThrottlingQuotaExceeded, RetryAfter: time.Second}, "throttled after 1s throttled", ""},
		{of(producer.Throttled, 0), "throttled throttled", ""},
		{unknown(of(producer.Throttled, 0)), "retryable unknown throttled", ""},

		// the record
		{of(producer.Permanent, kafka.MessageSizeTooLarge), "permanent too_large", ""},
		{of(producer.Permanent, kafka.RecordListTooLarge), "permanent too_large", ""},
		{of(producer.Permanent, 0), "permanent too_large", ""},
		{of(producer.Permanent, kafka.InvalidRecord), "permanent refused", ""},
		{of(producer.Permanent, kafka.InvalidTimestamp), "permanent refused", ""},
		{of(producer.Permanent, kafka.InvalidMessage), "permanent refused", ""},
		{unknown(of(producer.Permanent, kafka.InvalidRecord)), "retryable unknown refused", ""}, // an earlier try may be written
	} {
		test.err.Text = "the password hunter2\nis wrong"
		for fixed, want := range map[bool]string{true: test.one, false: test.topics} {
			if want == "" {
				want = test.one
			}
			got := judging(fixed).call([]producer.Result{{}, {Err: &test.err}})
			if got[0].Kind != core.Delivered || verdict(got[1]) != want || got[1].Message != "the password *** is wrong" {
				t.Errorf("%v %d, one topic %v: %s %q, want %s", test.err.Class, test.err.Code, fixed, verdict(got[1]), got[1].Message, want)
			}
		}
	}
}

// TestCalls judges calls as a whole: when nobody answered, it is not the records' fault.
func TestCalls(t *testing.T) {
	lost := producer.Result{Err: &producer.Error{Unknown: true, Text: "lost"}}
	late := producer.Result{NotSent: true, Err: &producer.Error{Text: "late"}}
	noLeader := producer.Result{NotSent: true, Err: &producer.Error{Code: kafka.LeaderNotAvailable, Text: "leader"}}
	missing := producer.Result{NotSent: true, Err: &producer.Error{Class: producer.UnknownTopic, Code: kafka.UnknownTopicOrPartition, Text: "missing"}}
	away := producer.Result{NotSent: true, Err: &producer.Error{Class: producer.Sink, Text: "away"}}
	large := producer.Result{Err: &producer.Error{Class: producer.Permanent, Text: "large"}}
	leader := producer.Result{Err: &producer.Error{Code: kafka.LeaderNotAvailable, Text: "leader"}}
	for _, test := range []struct {
		results []producer.Result
		want    string
	}{
		{[]producer.Result{{}, {}}, "delivered , delivered "},
		{[]producer.Result{{}, lost, late}, "delivered , retryable key unknown unconfirmed, not_attempted behind"},
		{[]producer.Result{lost, late}, "retryable sink unknown unconfirmed, not_attempted behind"},
		{[]producer.Result{late, late}, "retryable sink connection, retryable sink connection"},
		{[]producer.Result{noLeader, late}, "retryable key no_leader, retryable key connection"},
		{[]producer.Result{missing}, "retryable sink unknown_topic"},
		{[]producer.Result{{}, noLeader}, "delivered , not_attempted behind"},
		{[]producer.Result{away, away}, "retryable sink connection, retryable sink connection"},
		{[]producer.Result{leader, late}, "retryable key no_leader, not_attempted behind"},
		{[]producer.Result{lost, leader}, "retryable key unknown unconfirmed, retryable key no_leader"},
		{[]producer.Result{large, late}, "permanent too_large, not_attempted behind"},
	} {
		var got []string
		for _, o := range judging(true).call(test.results) {
			got = append(got, verdict(o))
			if o.Kind != core.Delivered && o.Message == "" {
				t.Errorf("%s: an outcome says nothing", test.want)
			}
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s, want %s", strings.Join(got, ", "), test.want)
		}
	}
}
