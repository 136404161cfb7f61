package rabbitmq

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/scripts/services/proxy"
)

// TestWrongPassword begins with a wrong password, and is given another one in mid-run. Nothing is charged or buried, the
// password is shown nowhere, and when the file has the right one the sink goes on by itself.
func TestWrongPassword(t *testing.T) {
	const wrong, right, renewed = "wrong-hunter2", "right-hunter2", "renewed-hunter2"
	s := sharedServer(t)
	s.exchange("shop", "quorum", nil)
	user := s.vhost + "-relay"
	s.setPassword(user, right)
	s.allow(user, "^shop$")
	p := proxy.New(t, s.address, proxy.Bytes)
	file := filepath.Join(t.TempDir(), "password")
	write := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hidden := func(text string) {
		t.Helper()
		if strings.Contains(text, "hunter2") {
			t.Errorf("a password is shown: %s", text)
		}
	}
	settings := merged(t, string(s.settings(p.Addr, `{"exchange":"shop","routing_key":"{type}","username":"`+user+`","password_file":"`+file+`"}`)), `{"password":""}`)

	write(wrong)
	sink := configured(t, settings)
	err := sink.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "password") {
		t.Fatalf("opened with a wrong password: %v", err)
	}
	hidden(err.Error())
	write(right)
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	batch := rows(2, "a", "b")
	wantDelivered(t, deliver(t, sink, batch))

	s.setPassword(user, renewed)
	p.Away()()
	waitFor(t, func() bool {
		err := sink.Health(t.Context())
		return err != nil && strings.Contains(err.Error(), "login was refused")
	})
	for _, o := range deliver(t, sink, batch) {
		wantOutcome(t, o, core.NotAttempted, core.ScopeSink, "refused")
		hidden(o.Message)
	}
	hidden(sink.Health(t.Context()).Error())
	write(renewed)
	eventually(t, sink, batch)
	if n := len(s.take("shop")); n != 4 {
		t.Errorf("%d messages arrived", n)
	}
}

// TestMissingRight takes away the right to write: for all records the sink waits; for those that chose the target, these.
func TestMissingRight(t *testing.T) {
	s := sharedServer(t)
	s.exchange("shop", "quorum", nil)
	s.exchange("tenant", "quorum", nil)
	user := s.vhost + "-relay"
	s.setPassword(user, "secret")
	s.allow(user, "^shop$")
	login := `"username":"` + user + `","password":"secret"`
	sink := opened(t, s.settings(s.address, `{"exchange":"{header:exchange|shop}","routing_key":"{type}",`+login+`}`))
	batch := rows(12, "a", "b", "", "c")
	batch[0], batch[6] = with(batch[0], chosen, "tenant"), with(batch[6], chosen, "tenant")
	batch[0].Deliveries, batch[6].Deliveries = 2, 2
	for i, o := range deliver(t, sink, batch) {
		switch {
		case i == 0 || i == 6:
			wantOutcome(t, o, core.Retryable, core.ScopeKey, "refused")
		case i%4 == 0:
			wantOutcome(t, o, core.NotAttempted, core.ScopeDefault, "behind")
		case o.Kind != core.Delivered:
			t.Errorf("record %d: %+v", i, o)
		}
	}

	// The exchange is that of all records, whatever chooses the routing key.
	named := opened(t, s.settings(s.address, `{"exchange":"tenant","routing_key":"{type}",`+login+`}`))
	again := []core.Record{batch[0], batch[6]}
	for _, o := range deliver(t, named, again) {
		wantOutcome(t, o, core.Retryable, core.ScopeSink, "refused")
		if !strings.Contains(o.Message, "tenant") || !strings.Contains(o.Message, user) {
			t.Errorf("it does not say who may not do what: %s", o.Message)
		}
	}
	if n := len(s.take("tenant")); n != 0 {
		t.Errorf("%d messages arrived", n)
	}
	s.allow(user, "^(shop|tenant)$")
	eventually(t, named, again)

	// A virtual host that the user may not use.
	s.api("DELETE", "permissions/"+s.vhost+"/"+user, nil)
	if err := configured(t, s.settings(s.address, `{"exchange":"shop",`+login+`}`)).Open(t.Context()); err == nil || !strings.Contains(err.Error(), user) {
		t.Errorf("opened without a right to the virtual host: %v", err)
	}
}

// TestForbiddenTopic has one record with a routing key that the user may not use. The server closes the channel for it and
// does not say for which, so what was on its way is published again: marked, since it may be there already.
func TestForbiddenTopic(t *testing.T) {
	s := sharedServer(t)
	s.exchange("shop", "quorum", nil)
	user := s.vhost + "-relay"
	s.setPassword(user, "secret")
	s.allow(user, "^shop$")
	s.api("PUT", "topic-permissions/"+s.vhost+"/"+user, map[string]string{"exchange": "shop", "write": "^Order", "read": ""})
	sink := opened(t, s.settings(s.address, `{"exchange":"shop","routing_key":"{type}","lanes":1,"username":"`+user+`","password":"secret"}`))
	batch := rows(60, "", "a", "b")
	batch[4].Type = "Forbidden"
	for i, o := range deliver(t, sink, batch) {
		switch {
		case i == 4: // it was sent twice
			if wantOutcome(t, o, core.Retryable, core.ScopeKey, "refused"); !o.Unknown {
				t.Errorf("%+v", o)
			}
		case i%3 == 1 && i > 4:
			wantOutcome(t, o, core.NotAttempted, core.ScopeDefault, "behind")
		case o.Kind != core.Delivered:
			t.Errorf("record %d: %+v", i, o)
		}
	}
	batch[4].Deliveries = 2
	wantOutcome(t, deliver(t, sink, batch[4:5])[0], core.Retryable, core.ScopeKey, "refused")
	seen, marked := map[string]bool{}, 0
	for _, r := range s.arrived("shop") {
		if seen[r.ID] && !r.PossibleDuplicate() {
			t.Errorf("record %s arrived again without a mark", r.ID)
		}
		if seen[r.ID] = true; r.PossibleDuplicate() {
			marked++
		}
	}
	if len(seen) != 41 || marked == 0 {
		t.Errorf("%d records arrived, %d messages are marked", len(seen), marked)
	}
}
