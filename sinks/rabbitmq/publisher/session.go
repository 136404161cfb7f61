package publisher

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// session is one connection, from the handshake to its end.
type session struct {
	config   *Config
	log      *slog.Logger
	endpoint string
	wire     *wire
	conn     *amqp.Connection
	lanes    []*lane        // not changed after openLanes
	careful  atomic.Int64   // so many messages are sent one at a time, on one lane
	running  sync.WaitGroup // lanes and watchers
	probing  chan struct{}  // holds one while a probe runs

	once  sync.Once
	done  chan struct{} // closed at the end, when cause is set
	cause *Error

	mu        sync.Mutex
	blocked   chan struct{} // closed while the broker wants no messages
	because   string        // why it is blocked
	isBlocked atomic.Bool
	unblocked atomic.Int64 // when it was last unblocked, in nanoseconds of Unix time
}

func newSession(c *Config, log *slog.Logger, endpoint string, w *wire, conn *amqp.Connection) *session {
	s := &session{
		config: c, log: log, endpoint: endpoint, wire: w, conn: conn,
		probing: make(chan struct{}, 1), done: make(chan struct{}), blocked: make(chan struct{}),
	}
	closes := conn.NotifyClose(make(chan *amqp.Error, 1))
	blocks := conn.NotifyBlocked(make(chan amqp.Blocking, 16))
	s.running.Go(func() { s.watch(closes, blocks) })
	return s
}

// openLanes opens the channels and starts to work them.
func (s *session) openLanes(n, window int) error {
	lanes := make([]*lane, n)
	for i := range lanes {
		lanes[i] = newLane(s, window)
		if err := lanes[i].open(); err != nil {
			return fmt.Errorf("open a channel: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes = lanes
	for _, l := range lanes {
		s.running.Go(l.run)
	}
	return nil
}

// watch follows the connection's notices until it ends. Both channels are closed by the library then.
func (s *session) watch(closes <-chan *amqp.Error, blocks <-chan amqp.Blocking) {
	patience := time.NewTimer(0)
	<-patience.C
	defer patience.Stop()
	for blocks != nil || closes != nil {
		select {
		case cause := <-closes:
			s.end(lost(cause))
			closes = nil
		case b, ok := <-blocks:
			switch {
			case !ok:
				blocks = nil
			case b.Active:
				s.block(b.Reason)
				patience.Reset(s.config.BlockedTimeout)
			default:
				patience.Stop()
				s.unblock()
			}
		case <-patience.C:
			s.end(&Error{Kind: KindBlocked, Text: fmt.Sprintf("the connection was given up, since RabbitMQ has blocked it for %v", s.config.BlockedTimeout)})
		}
	}
}

func (s *session) block(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.because = reason
	if s.isBlocked.Swap(true) {
		return
	}
	close(s.blocked)
	s.wake()
	s.log.Warn("RabbitMQ wants no messages now", "endpoint", s.endpoint, "reason", s.config.Hide(reason))
}

func (s *session) unblock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isBlocked.Load() {
		return
	}
	s.unblocked.Store(time.Now().UnixNano())
	s.blocked = make(chan struct{})
	s.isBlocked.Store(false)
	s.wake()
	s.log.Info("RabbitMQ takes messages again", "endpoint", s.endpoint)
}

// whyBlocked returns an error while the broker wants no messages, else nil.
func (s *session) whyBlocked() *Error {
	if !s.isBlocked.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Error{Kind: KindBlocked, Text: "RabbitMQ has blocked the connection: " + s.because}
}

// blocks returns a channel that is closed while the broker wants no messages.
func (s *session) blocks() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked
}

func (s *session) wake() {
	for _, l := range s.lanes {
		l.nudge()
	}
}

// accept hands a call's messages to the lanes, apart from those that cannot be sent.
func (s *session) accept(c *call, check func(*Message) error) {
	heads := make([][]*item, len(s.lanes))
	var invalid []*item
	for i := range c.items {
		it := &c.items[i]
		if err := check(it.message); err != nil {
			it.invalid = &Error{Kind: KindInvalid, Text: err.Error()}
		}
		if it.behind {
			continue
		}
		if it.invalid != nil {
			invalid = append(invalid, it)
			continue
		}
		n := it.message.Lane % uint64(len(s.lanes))
		heads[n] = append(heads[n], it)
	}
	for _, it := range invalid {
		it.settle(it.invalid)
	}
	for n, items := range heads {
		if len(items) > 0 {
			s.lanes[n].push(items)
		}
	}
}

// forget takes a call's messages back from the lanes.
func (s *session) forget(c *call) {
	for _, l := range s.lanes {
		l.forget(c)
	}
}

// end ends the session. Everything that waits for the connection comes back soon after.
func (s *session) end(cause *Error) {
	s.once.Do(func() {
		s.cause = cause
		close(s.done)
		s.wire.kill()
	})
}

// wait returns when nothing of an ended session is left. It is called once.
func (s *session) wait() {
	s.probing <- struct{}{} // no probe runs, and none begins any more
	s.running.Wait()
}

// farewell closes the connection in good order, within ctx and two seconds.
func (s *session) farewell(ctx context.Context) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { s.end(errClosed) })()
	deadline, _ := ctx.Deadline()
	_ = s.conn.CloseDeadline(deadline) // the connection is over either way
	s.end(errClosed)
}
