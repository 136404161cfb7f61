package kafka

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/sinks/kafka/producer"
)

// healthy asks whether a broker answers, and whether the one topic, if there is one, takes records.
func (s *session) healthy(ctx context.Context) error {
	if s.composer.fixed == "" {
		return s.producer.Health(ctx)
	}
	t, err := look(ctx, s.producer, s.composer.fixed)
	switch {
	case errors.Is(err, errNoTopic) && s.config.CreateTopics != nil:
		return nil // it will be there when it is needed
	case err != nil:
		return err
	}
	return t.trouble(s.config.Acks == acksAll)
}

// advise logs what is worth a thought about the one topic. That it is missing is for Health to say, or for the first record.
func (s *session) advise(ctx context.Context, log *slog.Logger) {
	if s.composer.fixed == "" {
		return
	}
	t, err := look(ctx, s.producer, s.composer.fixed)
	if err != nil {
		return
	}
	for _, text := range t.advice(s.config.Acks == acksAll, int(s.config.MaxBatchBytes)) {
		log.WarnContext(ctx, text)
	}
}

// producer says how messages travel. fixed: all go to one topic.
func (c *config) producer(fixed bool, log *slog.Logger) producer.Config {
	p := producer.Config{
		Brokers: c.Brokers, ClientID: c.ClientID,
		SASL: newLogin(c.SASL), DialTimeout: time.Duration(c.Timeouts.Connect),
		Acks: producer.AcksAll, Idempotent: c.Idempotent, Compression: compression(c.Compression), MaxBatchBytes: int(c.MaxBatchBytes),
		RequestTimeout: time.Duration(c.Timeouts.Request), Log: log,
	}
	if c.Acks == acksOne {
		p.Acks = producer.AcksLeader
	}
	if c.TLS != nil {
		p.TLS = c.TLS.Source()
	}
	if t := c.CreateTopics; t != nil {
		p.CreateTopics = &producer.CreateTopics{Partitions: t.Partitions, Replication: t.Replication}
	}
	if !fixed { // else a missing topic is nothing that a record is to blame for
		p.UnknownTopicGrace = time.Duration(c.UnknownTopicGrace)
	}
	return p
}

// compression is a value of the setting as the client library has it.
func compression(name string) kafka.Compression {
	switch name {
	case "gzip":
		return kafka.Gzip
	case "snappy":
		return kafka.Snappy
	case "lz4":
		return kafka.Lz4
	case "zstd":
		return kafka.Zstd
	}
	return 0
}

// hide replaces secrets of the settings in a text, which may be a broker's.
func (c *config) hide(text string) string { return settings.Mask(text, c) }
