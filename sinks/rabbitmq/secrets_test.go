package rabbitmq

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// gossip is a server that lets the first client through to a real one, until leave; later ones are told their own password.
type gossip struct {
	addr  string
	leave func()
}

func gossiping(t *testing.T, address, password string) gossip {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	left := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for first := true; ; first = false {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			if !first {
				running.Go(func() { tell(client, "NOT_ALLOWED - you said "+password) })
				continue
			}
			server := must(net.Dial("tcp", address))
			running.Go(func() { _, _ = io.Copy(client, server) })
			running.Go(func() { _, _ = io.Copy(server, client) })
			running.Go(func() {
				<-left
				client.Close()
				server.Close()
			})
		}
	})
	g := gossip{listener.Addr().String(), sync.OnceFunc(func() { close(left) })}
	t.Cleanup(func() {
		g.leave()
		listener.Close()
		running.Wait()
	})
	return g
}

// tell speaks AMQP 0-9-1 up to connection.open, and closes the connection with a text.
func tell(client net.Conn, text string) {
	defer client.Close()
	method := func(payload string) {
		_, _ = client.Write([]byte("\x01\x00\x00\x00\x00\x00" + string(rune(len(payload))) + payload + "\xce"))
	}
	b := make([]byte, 4096)
	_, _ = client.Read(b)                                                                        // protocol header
	method("\x00\x0a\x00\x0a\x00\x09\x00\x00\x00\x00\x00\x00\x00\x05PLAIN\x00\x00\x00\x05en_US") // start
	_, _ = client.Read(b)                                                                        // start-ok
	method("\x00\x0a\x00\x1e\x00\x00\x00\x02\x00\x00\x00\x00")                                   // tune
	for !bytes.Contains(b, []byte("\x00\x0a\x00\x28")) {                                         // open
		if n, err := client.Read(b); err != nil || n == 0 {
			return
		}
	}
	method("\x00\x0a\x00\x32\x02\x12" + string(rune(len(text))) + text + "\x00\x0a\x00\x28") // close, 530
	_, _ = io.Copy(io.Discard, client)
}

// TestAServerThatRepeatsThePassword is shown with neither an error nor a line of the log that has it.
func TestAServerThatRepeatsThePassword(t *testing.T) {
	s := sharedServer(t)
	s.exchange("shop", "quorum", nil)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(s.password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := gossiping(t, s.address, s.password)
	var log logged
	sink := configured(t, merged(t, string(s.settings(g.addr, `{"exchange":"shop","routing_key":"{type}","password_file":"`+file+`"}`)), `{"password":""}`))
	sink.log = slog.New(slog.NewTextHandler(&log, nil))
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.leave()
	var seen string
	waitFor(t, func() bool {
		if err := sink.Health(t.Context()); err != nil {
			seen = err.Error()
		}
		return strings.Contains(seen, "you said") && strings.Contains(log.String(), "you said")
	})
	seen += deliver(t, sink, rows(1, "a"))[0].Message + log.String()
	if strings.Contains(seen, s.password) {
		t.Errorf("the password is shown: %s", strings.ReplaceAll(seen, s.password, "<password>"))
	}
}

// logged is what was logged. It may be written to concurrently.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
