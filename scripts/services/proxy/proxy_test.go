package proxy_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/connectd/connectd/scripts/services/proxy"
)

// echo is a server that says what it hears, and tells the test that it has heard something.
func echo(t *testing.T) (addr string, heard <-chan bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	all := make(chan bool, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 1)
				for {
					if _, err := io.ReadFull(c, b); err != nil {
						return
					}
					all <- true
					if _, err := c.Write(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), all
}

func dial(t *testing.T, p *proxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func say(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte{'x'}); err != nil {
		t.Fatal(err)
	}
}

// answered waits for an answer, for so long.
func answered(c net.Conn, within time.Duration) error {
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

const (
	patience = 10 * time.Second
	moment   = 50 * time.Millisecond // in which what is not to happen would have happened
)

func TestHang(t *testing.T) {
	addr, heard := echo(t)
	p := proxy.New(t, addr, proxy.Bytes)
	c := dial(t, p)
	restore := p.Hang()
	say(t, c)
	<-heard
	if err := answered(c, moment); !os.IsTimeout(err) {
		t.Errorf("an answer while the server hangs: %v", err)
	}
	restore()
	if err := answered(c, patience); err != nil {
		t.Error(err)
	}
}

func TestFreeze(t *testing.T) {
	addr, heard := echo(t)
	p := proxy.New(t, addr, proxy.Bytes)
	thaw := p.Freeze()
	c := dial(t, p)
	say(t, c)
	select {
	case <-heard:
		t.Error("the server heard something through a cut network")
	case <-time.After(moment):
	}
	thaw()
	if err := answered(c, patience); err != nil {
		t.Error(err)
	}
}

func TestAway(t *testing.T) {
	addr, _ := echo(t)
	p := proxy.New(t, addr, proxy.Bytes)
	before := dial(t, p)
	say(t, before)
	if err := answered(before, patience); err != nil {
		t.Fatal(err)
	}
	back := p.Away()
	if err := answered(before, patience); err == nil || os.IsTimeout(err) {
		t.Errorf("the connection lives on: %v", err)
	}
	if c, err := net.Dial("tcp", p.Addr); err == nil {
		c.Close()
		t.Error("a connection to a server that is away")
	}
	back()
	after := dial(t, p)
	say(t, after)
	if err := answered(after, patience); err != nil {
		t.Error(err)
	}
}

// TestEnd has what is kept when the test ends: nothing may wait for it.
func TestEnd(t *testing.T) {
	addr, heard := echo(t)
	t.Run("", func(t *testing.T) {
		p := proxy.New(t, addr, proxy.Bytes)
		c := dial(t, p)
		p.Hang()
		say(t, c)
		<-heard
		p.Away()
	})
}
