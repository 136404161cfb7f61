//go:build linux

package chaos

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// echo is a server that answers each line with itself, and remembers the lines.
type echo struct {
	address string
	heard   chan string
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	e := &echo{address: l.Addr().String(), heard: make(chan string, 100)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					e.heard <- lines.Text()
					_, _ = io.WriteString(c, lines.Text()+"\n")
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return e
}

// hears is the next line that the server heard.
func (e *echo) hears(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-e.heard:
		if got != want {
			t.Errorf("the server heard %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("the server did not hear %q", want)
	}
}

// talker is a client that talks in lines.
type talker struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, address string) *talker {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return &talker{t, c, bufio.NewReader(c)}
}

func (c *talker) say(line string) {
	c.t.Helper()
	_, err := io.WriteString(c.c, line+"\n")
	must(c.t, err)
}

// hears is the next answer; it may take so long.
func (c *talker) hears(within time.Duration) (string, error) {
	must(c.t, c.c.SetReadDeadline(time.Now().Add(within)))
	text, err := c.r.ReadString('\n')
	return strings.TrimSpace(text), err
}

func (c *talker) wants(line string) {
	c.t.Helper()
	if got, err := c.hears(patience); got != line || err != nil {
		c.t.Fatalf("the answer is %q, %v; want %q", got, err, line)
	}
}

// silence is a wait after which nothing is taken to come any more.
const silence = 100 * time.Millisecond

func TestProxy(t *testing.T) {
	start := func(t *testing.T) (*echo, *proxy, *talker) {
		e := startEcho(t)
		p := newProxy(t, e.address, false)
		c := dial(t, p.addr)
		c.say("one")
		c.wants("one")
		e.hears(t, "one")
		return e, p, c
	}
	ends := func(t *testing.T, c *talker) {
		t.Helper()
		if text, err := c.hears(patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection lives: %q, %v", text, err)
		}
	}
	t.Run("reset", func(t *testing.T) {
		_, p, c := start(t)
		p.cut()
		ends(t, c)
		c = dial(t, p.addr)
		c.say("two")
		c.wants("two")
	})
	t.Run("down", func(t *testing.T) {
		e, p, c := start(t)
		p.set(down)
		ends(t, c)
		if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.addr); err == nil { // reset before or after
			ends(t, &talker{t, c, bufio.NewReader(c)})
			c.Close()
		}
		p.set(pass)
		c = dial(t, p.addr)
		c.say("two")
		c.wants("two")
		e.hears(t, "two")
	})
	t.Run("delay", func(t *testing.T) {
		_, p, c := start(t)
		p.set(delay)
		began := time.Now()
		c.say("two")
		c.wants("two")
		if took := time.Since(began); took < 2*proxyDelay {
			t.Errorf("there and back in %v", took)
		}
	})
	t.Run("half-open, late", func(t *testing.T) {
		e, p, c := start(t)
		p.set(hold)
		c.say("two")
		if text, err := c.hears(silence); !errors.Is(err, os.ErrDeadlineExceeded) || len(e.heard) > 0 {
			t.Errorf("something got through: %q, %v", text, err)
		}
		c.c.Close() // its client gives up, and what it said comes all the same
		p.set(pass)
		e.hears(t, "two")
	})
	t.Run("half-open, answers lost", func(t *testing.T) {
		e, p, c := start(t)
		p.set(mute)
		c.say("two")
		e.hears(t, "two")
		if text, err := c.hears(silence); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("something came back: %q, %v", text, err)
		}
		p.set(pass)
		ends(t, c) // it cannot go on: an answer is missing
	})
}
