package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	probeLimit   = 2 * time.Second // for a NOTIFY of our own to come back
	probeEvery   = time.Minute
	listenAgain  = time.Second // pause before a listener that failed tries again, doubled up to listenSeldom
	listenSeldom = 30 * time.Second
)

// listener has a connection of its own on which it is told of new rows. It always takes what comes, since a server that
// cannot send keeps its snapshot, and vacuum with it, from going on.
type listener struct {
	srv     *server
	channel string
	send    func(ctx context.Context, payload string) error // on another connection
	log     *slog.Logger
	wake    chan struct{}
	up      atomic.Bool   // NOTIFY comes through
	first   chan struct{} // closed when it is known for the first time whether it does
	once    sync.Once
	cancel  context.CancelFunc
	ended   chan struct{}
}

// startListener listens until close. ctx gives its values.
func (src *Source) startListener(ctx context.Context, srv *server, log *slog.Logger) *listener {
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{
		srv: srv, channel: src.s.channel(), log: log, cancel: cancel,
		wake: make(chan struct{}, 1), first: make(chan struct{}), ended: make(chan struct{}),
	}
	l.send = func(ctx context.Context, payload string) error {
		_, err := src.keep.Exec(ctx, "SELECT pg_notify($1::text, $2::text)", l.channel, payload)
		return err
	}
	go l.run(ctx)
	return l
}

// ready waits until it is known whether NOTIFY comes through.
func (l *listener) ready(ctx context.Context) error {
	select {
	case <-l.first:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *listener) close() {
	l.cancel()
	<-l.ended
}

func (l *listener) run(ctx context.Context) {
	defer close(l.ended)
	wait, told := listenAgain, ""
	for ctx.Err() == nil {
		err := l.session(ctx)
		if l.up.Swap(false) {
			wait, told = listenAgain, ""
		}
		if err != nil && ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			l.log.Warn("NOTIFY does not come through, new rows are found by polling", "channel", l.channel, "error", err)
		}
		l.once.Do(func() { close(l.first) })
		if pause(ctx, wait/2+mathrand.N(wait/2)) != nil {
			return
		}
		wait = min(2*wait, listenSeldom)
	}
}

var errSilent = errors.New("a NOTIFY of our own did not come back: is there a transaction pooler in between?")

// session listens on one connection until it ends.
func (l *listener) session(ctx context.Context) error {
	dialling, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := l.srv.dial(dialling)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		conn.Close(closing)
	}()
	if _, err := conn.Exec(dialling, "LISTEN "+quote(l.channel)); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	for {
		if err := l.probe(ctx, conn); err != nil {
			return err
		}
		if !l.up.Swap(true) {
			l.log.Info("listening for new rows", "channel", l.channel)
		}
		l.once.Do(func() { close(l.first) })
		l.poke() // rows may have come while nobody listened
		if err := l.hear(ctx, conn); err != nil {
			return err
		}
	}
}

// hear takes notifications until it is time for a probe.
func (l *listener) hear(ctx context.Context, conn *pgx.Conn) error {
	hearing, cancel := context.WithTimeout(ctx, probeEvery)
	defer cancel()
	for {
		_, err := conn.WaitForNotification(hearing)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case hearing.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("wait for a notification: %w", err)
		}
		l.poke()
	}
}

// probe sends a notification and waits for it. A LISTEN through a transaction pooler succeeds, and nothing ever comes.
func (l *listener) probe(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	token := "probe " + rand.Text()
	if err := l.send(ctx, token); err != nil {
		return fmt.Errorf("notify: %w", discreet(err))
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil && n.Payload == token:
			return nil
		case err == nil:
			l.poke()
		case ctx.Err() != nil:
			return errSilent
		default:
			return fmt.Errorf("wait for a notification: %w", err)
		}
	}
}

func (l *listener) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
