package kafka

import (
	"context"
	"fmt"
	"sync"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/connectd/connectd/core/secretfile"
)

// mechanismPlain is the mechanism that sends the password as it is.
const mechanismPlain = "PLAIN"

// login shows the brokers who the sink is, with the password as it is when a connection is made: a password file that was
// changed counts for the next connection, so a sink that was refused recovers by itself.
type login struct {
	mechanism, username string
	password            secretfile.Secret

	mu    sync.Mutex
	with  string         // the password that scram is for
	scram sasl.Mechanism // nil until used; it keeps what is costly to compute
}

var _ sasl.Mechanism = (*login)(nil)

// newLogin returns nil when there is nobody to show.
func newLogin(s *saslConfig) sasl.Mechanism {
	if s == nil {
		return nil
	}
	return &login{mechanism: s.Mechanism, username: s.Username, password: s.Secret()}
}

// Name is the mechanism's, as Kafka has it.
func (l *login) Name() string { return l.mechanism }

// Start begins an authentication.
func (l *login) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	password, err := l.password()
	if err != nil {
		return nil, nil, fmt.Errorf("read the SASL password: %w", err)
	}
	if l.mechanism == mechanismPlain {
		return plain.Mechanism{Username: l.username, Password: password}.Start(ctx)
	}
	m, err := l.scramWith(password)
	if err != nil {
		return nil, nil, err
	}
	return m.Start(ctx)
}

func (l *login) scramWith(password string) (sasl.Mechanism, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scram != nil && l.with == password {
		return l.scram, nil
	}
	algorithm := scram.SHA512
	if l.mechanism == "SCRAM-SHA-256" {
		algorithm = scram.SHA256
	}
	m, err := scram.Mechanism(algorithm, l.username, password)
	if err != nil {
		return nil, fmt.Errorf("the username or the password cannot be used for %s: %w", l.mechanism, err)
	}
	l.with, l.scram = password, m
	return m, nil
}
