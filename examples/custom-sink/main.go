// Command connectd-sink-line is a sink for a server that takes a line of text for each record and answers each line with
// a number: 250 when it has stored the record, 5xx when it never will.
//
//	→ AUTH "open sesame"
//	← 250 welcome
//	→ PUT 1 "order-1" "ada" "order.placed" "{\"order\":1}"
//	← 250 stored
package main

import (
	"context"
	"net"
	"net/textproto"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/plugins"
	"github.com/connectd/connectd/plugins/single"
)

// The settings, as they stand in connectd.yaml.
type config struct {
	Address string          `json:"address" required:"true" doc:"host:port of the server"`
	Token   settings.Secret `json:"token" required:"true" doc:"what the server lets us in for"`
}

func main() { plugins.Serve(newSink()) }

func newSink() core.Sink { return single.New("line", "1.0.0", connect) }

type server struct{ *textproto.Conn }

func connect(ctx context.Context, c config) (single.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })() // a server that does not answer AUTH
	s := server{textproto.NewConn(conn)}
	return s, s.ask("AUTH %q", c.Token.Reveal())
}

// Send returns nil when the server has the record. The id is the same on every attempt: the server dedupes by it.
func (s server) Send(_ context.Context, r core.Record) error {
	return s.ask("PUT %d %q %q %q %q", r.Deliveries, r.ID, r.Key, r.Type, r.Payload)
}

func (s server) Ping(context.Context) error { return s.ask("PING") }

// ask sends a line and waits for the answer.
func (s server) ask(format string, args ...any) error {
	if err := s.PrintfLine(format, args...); err != nil {
		return err
	}
	code, message, err := s.ReadCodeLine(250)
	if code >= 500 {
		return single.Failure{Kind: core.Permanent, Code: "refused", Message: message}
	}
	return err
}
