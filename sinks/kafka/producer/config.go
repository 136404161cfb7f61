package producer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
)

// The defaults of Config, and MaxBatchBytes' ceiling.
const (
	DefaultDialTimeout    = 5 * time.Second
	DefaultIdleTimeout    = time.Minute
	DefaultRequestTimeout = 10 * time.Second
	DefaultMetadataTTL    = 30 * time.Second
	DefaultBackoffMin     = 50 * time.Millisecond
	DefaultBackoffMax     = 500 * time.Millisecond
	// DefaultMaxBatchBytes is a little less than what a broker takes by default (message.max.bytes, 1 MiB and 12 bytes).
	DefaultMaxBatchBytes = 1<<20 - 4<<10
	// LargestMaxBatchBytes keeps a request below what a broker reads at all (socket.request.max.bytes, 100 MiB).
	LargestMaxBatchBytes = 64 << 20
)

// Acks is how many replicas must have a batch before the broker confirms it.
type Acks uint8

// The kinds of Acks. Only AcksAll, the zero value, outlives the loss of a leader.
const (
	AcksAll Acks = iota
	AcksLeader
)

// wire is the number in a produce request.
func (a Acks) wire() int16 {
	if a == AcksLeader {
		return 1
	}
	return -1
}

// Config is what a Producer needs to know. Zero durations and sizes mean the defaults.
type Config struct {
	// Brokers are host:port; any that answers tells of all others.
	Brokers []string
	// ClientID is what brokers log, and what quotas are for.
	ClientID string

	// Dial makes TCP connections; nil is net.Dialer's.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// TLS is asked for each new connection; nil means none. An empty ServerName becomes the broker's host.
	TLS func() (*tls.Config, error)
	// SASL is asked for each new connection; nil means none.
	SASL sasl.Mechanism
	// DialTimeout is for all of a connection's beginning: address, TCP, TLS, SASL.
	DialTimeout time.Duration
	// IdleTimeout ends a connection that nothing was sent on. It must be below the broker's connections.max.idle.ms,
	// else a batch may meet a connection that is being closed.
	IdleTimeout time.Duration

	Acks Acks
	// Idempotent numbers the batches so that the broker drops what it has already. It needs AcksAll. A broker that does
	// not allow it is used without, and the log says so.
	Idempotent  bool
	Compression kafka.Compression
	// MaxBatchBytes bounds a batch as the broker counts it, after compression; a message that does not fit is refused.
	MaxBatchBytes int

	// RequestTimeout is how long a broker may take to answer.
	RequestTimeout time.Duration
	// MetadataTTL is when leaders and partition counts are asked for again although nothing failed.
	MetadataTTL time.Duration
	// BackoffMin and BackoffMax bound the pause between two tries, which doubles, with jitter.
	BackoffMin, BackoffMax time.Duration

	// CreateTopics, if set, makes missing topics.
	CreateTopics *CreateTopics
	// UnknownTopicGrace is how long a topic may be missing before its messages are Permanent; zero is for ever.
	UnknownTopicGrace time.Duration

	Log *slog.Logger
}

// CreateTopics says what a new topic is like; zero leaves it to the broker.
type CreateTopics struct {
	Partitions  int
	Replication int
}

// withDefaults returns the configuration with nothing left open, or what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	if len(c.Brokers) == 0 {
		return c, errors.New("no brokers")
	}
	for _, b := range c.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			return c, fmt.Errorf("broker %q is not host:port: %w", b, err)
		}
	}
	for d, value := range map[*time.Duration]time.Duration{
		&c.DialTimeout: DefaultDialTimeout, &c.IdleTimeout: DefaultIdleTimeout, &c.RequestTimeout: DefaultRequestTimeout,
		&c.MetadataTTL: DefaultMetadataTTL, &c.BackoffMin: DefaultBackoffMin, &c.BackoffMax: DefaultBackoffMax,
	} {
		if *d == 0 {
			*d = value
		}
	}
	if c.MaxBatchBytes == 0 {
		c.MaxBatchBytes = DefaultMaxBatchBytes
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.DialTimeout < 0 || c.IdleTimeout < 0 || c.RequestTimeout < 0 || c.MetadataTTL < 0 || c.UnknownTopicGrace < 0:
		return c, errors.New("a duration below zero")
	case c.BackoffMin < 0 || c.BackoffMax < c.BackoffMin:
		return c, fmt.Errorf("a backoff from %v to %v", c.BackoffMin, c.BackoffMax)
	case c.MaxBatchBytes < minBatchBytes || c.MaxBatchBytes > LargestMaxBatchBytes:
		return c, fmt.Errorf("batches of %d bytes: from %d to %d can be sent", c.MaxBatchBytes, minBatchBytes, LargestMaxBatchBytes)
	case c.Acks > AcksLeader:
		return c, fmt.Errorf("acks of %d", c.Acks)
	case c.Idempotent && c.Acks != AcksAll:
		return c, errors.New("an idempotent producer needs the acks of all replicas")
	case c.Compression < 0 || c.Compression > kafka.Zstd:
		return c, fmt.Errorf("an unknown compression, %d", c.Compression)
	}
	return c, nil
}
