package rabbitmq

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/sinks/rabbitmq/publisher"
)

func judging(t *testing.T, changes string) *judge {
	t.Helper()
	_, made := parsed(t, changes)
	return newJudge(made, slog.New(slog.DiscardHandler))
}

// Settings by who chooses where messages go.
const (
	ourTarget  = `"exchange":"shop","routing_key":"orders"`
	rowsTarget = `"exchange":"{route}","routing_key":"{type}"`
	rowsKey    = `"exchange":"shop","routing_key":"{type}"`
)

// TestJudgements has the table of outcomes, row by row.
func TestJudgements(t *testing.T) {
	const (
		retry, bury, later, not = core.Retryable, core.Permanent, core.Throttled, core.NotAttempted
		record, key, sink       = core.ScopeDefault, core.ScopeKey, core.ScopeSink
	)
	for _, c := range []struct {
		settings string
		err      publisher.Error
		kind     core.OutcomeKind
		scope    core.Scope
		unknown  bool
		code     string
	}{
		{ourTarget, publisher.Error{Kind: publisher.KindInvalid}, bury, record, false, "invalid"},
		{ourTarget, publisher.Error{Kind: publisher.KindPrecondition, Code: 406}, bury, record, false, "precondition"},
		{ourTarget, publisher.Error{Kind: publisher.KindNack}, retry, record, false, "nack"},
		{rowsTarget, publisher.Error{Kind: publisher.KindNack}, retry, record, false, "nack"},
		{ourTarget, publisher.Error{Kind: publisher.KindReturned, Code: 312}, retry, record, false, "unroutable"},
		{rowsKey, publisher.Error{Kind: publisher.KindReturned, Code: 312}, retry, key, false, "unroutable"},
		{ourTarget + `,"on_unroutable":"permanent"`, publisher.Error{Kind: publisher.KindReturned, Code: 312}, bury, record, false, "unroutable"},
		{rowsKey + `,"on_unroutable":"permanent"`, publisher.Error{Kind: publisher.KindReturned, Code: 312}, bury, record, false, "unroutable"},
		{ourTarget, publisher.Error{Kind: publisher.KindMissingExchange, Code: 404}, retry, sink, false, "missing_exchange"},
		{rowsKey, publisher.Error{Kind: publisher.KindMissingExchange, Code: 404}, retry, sink, false, "missing_exchange"},
		{rowsTarget, publisher.Error{Kind: publisher.KindMissingExchange, Code: 404}, retry, key, false, "missing_exchange"},
		{rowsTarget + `,"on_missing_exchange":"permanent"`, publisher.Error{Kind: publisher.KindMissingExchange, Code: 404}, bury, record, false, "missing_exchange"},
		{ourTarget, publisher.Error{Kind: publisher.KindRefused, Code: 403}, retry, sink, false, "refused"},
		{rowsKey, publisher.Error{Kind: publisher.KindRefused, Code: 403}, retry, key, false, "refused"},
		{rowsKey, publisher.Error{Kind: publisher.KindRefused, Code: 403, OfExchange: true}, retry, sink, false, "refused"},
		{rowsKey, publisher.Error{Kind: publisher.KindRefused, Code: 403, OfExchange: true, Unknown: true}, retry, sink, true, "refused"},
		{rowsTarget, publisher.Error{Kind: publisher.KindRefused, Code: 403}, retry, key, false, "refused"},
		{rowsTarget, publisher.Error{Kind: publisher.KindRefused, Code: 403, OfExchange: true}, retry, key, false, "refused"},
		{ourTarget, publisher.Error{Kind: publisher.KindTimeout, Unknown: true}, retry, sink, true, "timeout"},
		{rowsTarget, publisher.Error{Kind: publisher.KindTimeout, Unknown: true}, retry, key, true, "timeout"},
		{ourTarget, publisher.Error{Kind: publisher.KindTimeout}, not, record, false, "timeout"},
		{ourTarget, publisher.Error{Kind: publisher.KindBlocked}, later, sink, false, "blocked"},
		{rowsTarget, publisher.Error{Kind: publisher.KindBlocked}, later, sink, false, "blocked"},
		{ourTarget, publisher.Error{Kind: publisher.KindBlocked, Unknown: true}, retry, sink, true, "blocked"},
		{ourTarget, publisher.Error{Kind: publisher.KindConnection, Unknown: true}, retry, sink, true, "connection"},
		{rowsTarget, publisher.Error{Kind: publisher.KindConnection}, not, sink, false, "connection"},
		{ourTarget, publisher.Error{Kind: publisher.KindChannel, Unknown: true}, retry, record, true, "channel"},
		{ourTarget, publisher.Error{Kind: publisher.KindChannel}, not, record, false, "channel"},
		{ourTarget, publisher.Error{Kind: publisher.KindNotAttempted}, not, record, false, "behind"},
		// What keeps a connection from being made is about the sink, whatever it would say of a message.
		{ourTarget, publisher.Error{Kind: publisher.KindRefused, Connecting: true}, not, sink, false, "refused"},
		{rowsTarget, publisher.Error{Kind: publisher.KindRefused, Connecting: true}, not, sink, false, "refused"},
		{ourTarget, publisher.Error{Kind: publisher.KindPrecondition, Connecting: true}, not, sink, false, "precondition"},
		{rowsTarget + `,"on_missing_exchange":"permanent"`, publisher.Error{Kind: publisher.KindMissingExchange, Connecting: true}, not, sink, false, "missing_exchange"},
	} {
		c.err.Text = "because"
		o := judging(t, `{`+c.settings+`}`).outcome(&c.err, false)
		if o.Kind != c.kind || o.Scope != c.scope || o.Unknown != c.unknown || o.Code != c.code || o.Message != "because" {
			t.Errorf("%s: %+v is %+v", c.settings, c.err, o)
		}
		if o.Unknown && o.Kind != core.Retryable || o.Kind == core.Throttled && o.RetryAfter == 0 {
			t.Errorf("%s: %+v makes no sense: %+v", c.settings, c.err, o)
		}
	}
	if o := judging(t, `{}`).outcomes([]*publisher.Message{{}}, make([]publisher.Result, 1)); o[0] != (core.Outcome{Kind: core.Delivered}) {
		t.Errorf("no error is %+v", o)
	}
}

// TestUncertainRefusals is about messages that may have been taken before the exchange vanished, or a right.
func TestUncertainRefusals(t *testing.T) {
	refused := publisher.Error{Kind: publisher.KindRefused, Unknown: true, Text: "because"}
	j := judging(t, `{`+rowsTarget+`,"on_missing_exchange":"permanent"}`)
	if o := j.outcome(&refused, false); o.Kind != core.Retryable || !o.Unknown || o.Scope != core.ScopeKey {
		t.Errorf("refused: %+v", o)
	}
	missing := publisher.Error{Kind: publisher.KindMissingExchange, Unknown: true, Text: "because"}
	if o := j.outcome(&missing, false); o.Kind != core.Permanent || o.Unknown || !strings.Contains(o.Message, "may have been taken") {
		t.Errorf("missing: %+v", o)
	}
	if o := judging(t, `{`+ourTarget+`}`).outcome(&refused, false); o.Kind != core.Retryable || !o.Unknown || o.Scope != core.ScopeSink {
		t.Errorf("refused for all: %+v", o)
	}
}

// TestFullQueues tells a queue that takes nothing from a message that is not taken.
func TestFullQueues(t *testing.T) {
	nack := &publisher.Error{Kind: publisher.KindNack, Text: "nack"}
	for name, c := range map[string]struct {
		settings string
		to       string // the messages' queues
		nacked   string // n: refused
		want     string // d: delivered, r: retryable, t: throttled
		scope    core.Scope
	}{
		"one alone":    {ourTarget, "a", "n", "r", core.ScopeDefault},
		"one of three": {ourTarget, "aaa", ".n.", "drd", core.ScopeDefault},
		"two of three": {ourTarget, "aaa", "n.n", "tdt", core.ScopeSink},
		"two of five":  {ourTarget, "aaaaa", "nn...", "rrddd", core.ScopeDefault},
		"full of two":  {rowsKey, "abab", "n.n.", "tdtd", core.ScopeKey},
		"one each":     {rowsKey, "ab", "nn", "rr", core.ScopeDefault},
	} {
		var messages []*publisher.Message
		var results []publisher.Result
		for i := range c.to {
			messages = append(messages, &publisher.Message{Exchange: "shop", RoutingKey: c.to[i : i+1]})
			results = append(results, publisher.Result{})
			if c.nacked[i] == 'n' {
				results[i].Err = nack
			}
		}
		got := ""
		for _, o := range judging(t, `{`+c.settings+`}`).outcomes(messages, results) {
			got += o.Kind.String()[:1]
			if o.Kind == core.Throttled && o.Scope != c.scope {
				t.Errorf("%s: scope %v", name, o.Scope)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestRefusalsAreLogged since records that wait for a right change no state of the connector; but not each of them.
func TestRefusalsAreLogged(t *testing.T) {
	var log bytes.Buffer
	j := judging(t, `{`+rowsKey+`}`)
	j.log = slog.New(slog.NewTextHandler(&log, nil))
	now := time.Now()
	j.now = func() time.Time { return now }
	for range 3 {
		j.outcome(&publisher.Error{Kind: publisher.KindRefused, Text: "403 ACCESS_REFUSED"}, false)
	}
	now = now.Add(refusalsLogged)
	j.outcome(&publisher.Error{Kind: publisher.KindRefused, Text: "403 ACCESS_REFUSED"}, false)
	if n := strings.Count(log.String(), "403 ACCESS_REFUSED"); n != 2 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
	now = now.Add(refusalsLogged)
	j.outcome(&publisher.Error{Kind: publisher.KindNack, Text: "a queue is full"}, true)
	if n := strings.Count(log.String(), "a queue is full"); n != 1 {
		t.Errorf("a full queue that a row chose is logged %d times: %s", n, log.String())
	}
}

func TestSecretsAreHidden(t *testing.T) {
	j := judging(t, `{"username":"u","password":"hunter2-secret"}`)
	o := j.outcome(&publisher.Error{Kind: publisher.KindConnection, Text: "login hunter2-secret\x00failed"}, false)
	if o.Message != "login *** failed" {
		t.Errorf("%q", o.Message)
	}
}
