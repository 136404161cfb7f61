// Package demo is `connectd demo`: a shop that commits orders with their commands, a daemon that relays them as webhooks
// and is killed, a receiver that does each command once, and a check of the books that trusts none of them.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Demo is one show.
type Demo struct {
	// Program is the path of the connectd binary.
	Program string
	// Length is how long the shop is open.
	Length time.Duration
	Out    io.Writer
	// Colour says that Out understands colours.
	Colour bool
}

const (
	// settleLimit bounds the wait for the last rows, after the shop has closed.
	settleLimit = 12 * time.Second
	stopLimit   = 10 * time.Second
)

// configuration is what the daemon is given. The lease is short, so that the show need not wait for a takeover.
const configuration = `connectors:
  orders:
    source:
      plugin: sqlite
      path: %q
      table: outbox
    sink:
      plugin: webhook
      url: %q
      signing:
        secrets: [{file: %q}]
    delivery:
      lease: 2s
      drain: 5s
`

// Run plays the show. It returns an error when something was lost, reordered, invented or repeated without its mark.
func (d *Demo) Run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "connectd-demo-")
	if err != nil {
		return fmt.Errorf("make a directory for the demo: %w", err)
	}
	s := newScreen(d.Out, d.Colour)
	defer func() {
		if err != nil {
			s.say("the files are kept in " + dir)
			return
		}
		_ = os.RemoveAll(dir)
	}()
	secret := newSecret()
	receiver, err := startReceiver(ctx, secret)
	if err != nil {
		return err
	}
	defer receiver.close()
	relay, database, err := d.prepare(dir, receiver.url, secret)
	if err != nil {
		return err
	}
	s.title()
	if err := relay.init(ctx); err != nil {
		return err
	}
	shop, err := openShop(ctx, database)
	if err != nil {
		return err
	}
	defer shop.close()
	if err := d.play(ctx, s, shop, relay, receiver); err != nil {
		return err
	}
	books, err := audit(ctx, shop, receiver.since(0), receiver.refusals(), forgeries)
	if err != nil {
		return err
	}
	s.books(books)
	if !books.balanced() {
		return errors.New("the books do not balance")
	}
	return nil
}

// prepare writes what the daemon needs into the directory.
func (d *Demo) prepare(dir, url, secret string) (*relay, string, error) {
	r := &relay{program: d.Program, config: filepath.Join(dir, "connectd.yaml"), log: filepath.Join(dir, "connectd.log")}
	database, secretFile := filepath.Join(dir, "shop.db"), filepath.Join(dir, "secret")
	for path, content := range map[string][]byte{
		secretFile: []byte(secret), r.config: fmt.Appendf(nil, configuration, database, url, secretFile),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return nil, "", fmt.Errorf("prepare the demo: %w", err)
		}
	}
	return r, database, nil
}

// play is the show itself: open the shop, forge a command after a quarter, kill the sink's process at half and the daemon
// after three quarters of the time, close, drain. On a slow machine the acts take longer and the shop stays open for them.
func (d *Demo) play(ctx context.Context, s *screen, shop *shop, relay *relay, receiver *receiver) error {
	if err := relay.start(); err != nil {
		return err
	}
	defer relay.kill()
	s.event("connectd is running (pid %d)", relay.pid())
	open, closeShop := context.WithCancel(ctx)
	traded := make(chan struct{})
	var tradeErr error // set before traded is closed
	go func() {
		defer close(traded)
		tradeErr = shop.trade(open)
	}()
	defer func() {
		closeShop()
		<-traded
	}()
	watching, stopWatching := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watch(watching, receiver, s, shop)
	}()
	defer func() {
		stopWatching()
		<-watched
	}()
	began := time.Now()
	moment := func() (end func()) { return receiver.hold(ctx, time.Second) }
	for n, act := range []func() error{
		func() error {
			status, err := forge(ctx, receiver.url)
			if err == nil {
				s.accident("a stranger sends a command, signed with another secret; the receiver answers %d", status)
			}
			return err
		},
		func() error { return relay.killSink(ctx, s, moment) },
		func() error { return relay.killAndRestart(ctx, s, moment) },
	} {
		if err := pause(ctx, time.Until(began.Add(d.Length*time.Duration(n+1)/4))); err != nil {
			return err
		}
		if err := act(); err != nil {
			return err
		}
	}
	if err := pause(ctx, max(time.Until(began.Add(d.Length)), d.Length/6)); err != nil {
		return err
	}
	closeShop()
	if <-traded; tradeErr != nil {
		return tradeErr
	}
	s.event("the shop is closed; waiting for what is still on its way")
	if err := shop.drained(ctx, settleLimit); err != nil {
		return err
	}
	if err := relay.stop(stopLimit); err != nil {
		return err
	}
	s.event("connectd has stopped, exit code 0")
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
