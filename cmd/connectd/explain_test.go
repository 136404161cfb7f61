package main

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/connectd/connectd/cmd/connectd/daemon"
	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
	"github.com/connectd/connectd/sources/sqlite"
)

// explained is what `rows explain --json` says of a row.
func explained(t *testing.T, dir string, env map[string]string, id string) explanation {
	t.Helper()
	r := connectdWith(t, dir, "", env, "rows", "explain", "--json", id)
	var list []explanation
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list) != 1 || len(list[0].Because) == 0 {
		t.Fatalf("%v: %+v", err, r)
	}
	for _, because := range list[0].Because {
		if because.Code == "" || !strings.HasSuffix(because.Say, ".") {
			t.Errorf("a reason without a code or a sentence: %+v", because)
		}
	}
	return list[0]
}

// codes are the codes of the reasons, in their order.
func (e explanation) codes() string {
	var list []string
	for _, r := range e.Because {
		list = append(list, r.Code)
	}
	return strings.Join(list, " ")
}

// find returns the reason with the code.
func (e explanation) find(t *testing.T, code string) reason {
	t.Helper()
	i := slices.IndexFunc(e.Because, func(r reason) bool { return r.Code == code })
	if i < 0 {
		t.Fatalf("%s is not %s: %+v", e.ID, code, e)
	}
	return e.Because[i]
}

// explains waits until the codes are these.
func explains(t *testing.T, dir, id, codes string) explanation {
	t.Helper()
	var e explanation
	eventually(t, id+" is "+codes, func() (bool, string) {
		e = explained(t, dir, nil, id)
		return e.codes() == codes, fmt.Sprintf("%+v", e)
	})
	return e
}

// moment reads a time of an explanation, which must be near.
func moment(t *testing.T, what, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || time.Since(at).Abs() > 2*time.Hour {
		t.Errorf("%s is %q", what, text)
	}
	return at
}

// TestExplainARowThatIsNotThere: a transaction that is open or was rolled back, and a row that was cleaned up, of which a
// receipt may tell.
func TestExplainARowThatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart+"    retention: {published: 0s}\n")
	s := openShop(t, dir)
	tx, err := s.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("INSERT INTO outbox (id, payload) VALUES ('open', '{}')"); err != nil {
		t.Fatal(err)
	}
	if e := explained(t, dir, nil, "open"); e.codes() != "never_committed" || e.State != notFound || e.Do == "" {
		t.Errorf("of a transaction that is open: %+v", e)
	}
	_ = tx.Rollback()
	if e := explained(t, dir, nil, "open"); e.codes() != "never_committed" {
		t.Errorf("of one that was rolled back: %+v", e)
	}
	s.insert(2, 1)
	startDaemon(t, dir)
	eventually(t, "both are sent and cleaned up", func() (bool, string) {
		e := explained(t, dir, nil, "id-000001")
		return e.codes() == "unknown_id" && e.Because[0].Rows == 2, fmt.Sprintf("%+v", e)
	})
	s.exec("INSERT INTO connectd_receipt (command_id, consumer) VALUES ('id-000002', 'mailer')")
	if e := explained(t, dir, nil, "id-000002"); e.codes() != "unknown_id receipt" || e.Connector != "" || !strings.Contains(e.Do, "compare the id") {
		t.Errorf("of one whose receipt came when it was gone: %+v", e)
	}
	s.exec("UPDATE connectd_receipt SET result_ref = 'mail-7'")
	s.exec("INSERT INTO connectd_cleaned (tbl, command_id, at) VALUES ('outbox', 'id-000002', 1)") // as the cleaner does when there is a receipt
	e := explains(t, dir, "id-000002", "cleaned receipt")
	if r := e.find(t, "receipt").Receipt; !strings.Contains(e.Do, "a consumer has done it") || e.Connector != "orders" || r.Consumer != "mailer" || r.Status != "done" || r.Result != "mail-7" {
		t.Errorf("of one with a receipt: %+v", e)
	}
}

// TestExplainAPublishedRow: nothing is said of receipts where nobody wants any, unless there is one.
func TestExplainAPublishedRow(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	s := openShop(t, dir)
	s.insert(1, 1)
	startDaemon(t, dir)
	s.published(1)
	e := explained(t, dir, nil, "id-000001")
	if r := e.find(t, "published"); e.codes() != "published" || r.Send != 1 || moment(t, "the time", r.Since).IsZero() {
		t.Errorf("%+v", e)
	}
	write(t, dir, "connectd.yaml", quickstart+"    retention: {require_receipt: true}\n")
	if e := explained(t, dir, nil, "id-000001"); e.codes() != "published no_receipt" {
		t.Errorf("%+v", e)
	}
	s.exec("INSERT INTO connectd_receipt (command_id, consumer, status) VALUES ('id-000001', '', 'done')")
	if e := explained(t, dir, nil, "id-000001"); e.codes() != "published receipt" || moment(t, "the receipt's time", e.Because[1].Receipt.At).IsZero() {
		t.Errorf("%+v", e)
	}
	write(t, dir, "connectd.yaml", quickstart)
	if e := explained(t, dir, nil, "id-000001"); e.codes() != "published receipt" {
		t.Errorf("%+v", e)
	}
}

// TestExplainWhatPasses: a row in backoff, the one behind it, one that the application delayed, and one whose turn has come
// but for the calls that run; each with the moment it waits for, and who has its partition.
func TestExplainWhatPasses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installTorture(t, dir)
	write(t, dir, "connectd.yaml", tortureConfig(", path: "+filepath.Join(dir, "out.jsonl"), ", in_flight: 1, batch: {max_records: 1}"))
	connectd(t, dir, "init").want(t, 0)
	s := openShop(t, dir)
	if e := explained(t, dir, nil, "id-000001"); e.State != notFound {
		t.Errorf("%+v", e)
	}
	s.insert(5, 4) // 1 and 5 have one key
	s.exec("UPDATE outbox SET type = 'later' WHERE id = 'id-000001'")
	s.exec("UPDATE outbox SET type = 'slow' WHERE id = 'id-000003'")
	s.exec("UPDATE outbox SET available_at = (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)) + 3600000 WHERE id = 'id-000002'")
	if e := explained(t, dir, nil, "id-000005"); e.codes() != "no_daemon behind_pending" || e.Because[1].Row.ID != "id-000001" || !strings.Contains(e.Do, "connectd run") {
		t.Errorf("%+v", e)
	}
	d := startDaemon(t, dir)
	e := explains(t, dir, "id-000003", "in_flight")
	if r := e.Because[0]; e.State != "sending" || r.Send != 1 || r.Worker.PID != d.cmd.Process.Pid || r.Worker.Host == "" || r.Worker.Version == "" ||
		!moment(t, "the lease's end", r.Until).After(moment(t, "the send's begin", r.Since)) {
		t.Errorf("%+v", e)
	}
	e = explains(t, dir, "id-000001", "backoff leased")
	if r := e.Because[0]; time.Until(moment(t, "due", r.Until)) < 50*time.Minute || r.Error.Code != "http_500" || r.Error.Message != "out of order today" {
		t.Errorf("%+v", e)
	}
	if e.Because[1].Worker.PID != d.cmd.Process.Pid {
		t.Errorf("the partition is another worker's: %+v", e)
	}
	e = explains(t, dir, "id-000005", "behind_backoff leased")
	if r := e.Because[0]; r.Row.Seq != 1 || time.Until(moment(t, "due", r.Until)) < 50*time.Minute || !strings.Contains(r.Error.Message, "out of order today") {
		t.Errorf("%+v", e)
	}
	if e = explained(t, dir, nil, "id-000002"); e.codes() != "delayed leased" {
		t.Errorf("%+v", e)
	}
	if e = explained(t, dir, nil, "id-000004"); e.codes() != "due" || e.Because[0].Rows != 3 {
		t.Errorf("%+v", e)
	}
}

// TestExplainADaemonThatIsStopped: it is seen to be silent, then its lease has run out and what it sent was cut off;
// the next worker finds out what became of it.
func TestExplainADaemonThatIsStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	installTorture(t, dir)
	config := tortureConfig(", pause: 40s, path: "+filepath.Join(dir, "out.jsonl"), ", in_flight: 1, batch: {max_records: 1}")
	write(t, dir, "connectd.yaml", strings.Replace(config, "lease: 2s", "lease: 6s", 1))
	connectd(t, dir, "init").want(t, 0)
	s := openShop(t, dir)
	s.insert(2, 2)
	d := startDaemon(t, dir)
	explains(t, dir, "id-000001", "in_flight")
	d.signal(syscall.SIGSTOP)
	e := explains(t, dir, "id-000001", "in_flight worker_silent")
	if w := e.Because[1].Worker; w.PID != d.cmd.Process.Pid || *w.HeardSeconds < 4 {
		t.Errorf("%+v", e)
	}
	e = explains(t, dir, "id-000001", "in_flight_abandoned no_daemon")
	if r := e.Because[0]; !strings.Contains(r.Say, "sends it again, with the possible-duplicate mark") || !strings.Contains(e.Do, "start connectd run") {
		t.Errorf("%+v", e)
	}
	e = explained(t, dir, nil, "id-000002")
	if r := e.find(t, "no_daemon"); r.Worker.PID != d.cmd.Process.Pid || time.Since(moment(t, "last heard", r.Since)) < 5*time.Second {
		t.Errorf("%+v", e)
	}
}

// TestExplainAPartitionWithoutAWorker: given back, and a worker stands by that has not yet looked; the states are made by
// the source's own code, for a daemon looks at once.
func TestExplainAPartitionWithoutAWorker(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	openShop(t, dir).insert(1, 1)
	src, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "shop.db"), Table: "outbox"})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	beat := func(i daemon.Info) {
		t.Helper()
		info, err := json.Marshal(i)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := src.Heartbeat(t.Context(), "one", info, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	beat(daemon.Info{Host: "shop-1", PID: 4711, Version: "v1"})
	if e := explained(t, dir, nil, "id-000001"); e.codes() != "no_owner" || e.Because[0].Since != "" {
		t.Errorf("never leased: %+v", e)
	}
	taken, err := src.Acquire(t.Context(), "one", 1, time.Minute, false)
	if err != nil || len(taken) != 1 {
		t.Fatal(taken, err)
	}
	if e := explained(t, dir, nil, "id-000001"); e.codes() != "due" || !strings.Contains(e.Because[0].Say, "worker one (pid 4711 of shop-1, connectd v1) has its partition (0)") {
		t.Errorf("leased: %+v", e)
	}
	beat(daemon.Info{Host: "shop-1", PID: 4711, Engine: engine.Status{SourceError: "step: disk I/O error"}})
	if e := explained(t, dir, nil, "id-000001"); e.codes() != "source_error leased" || e.Because[0].Error.Message != "step: disk I/O error" {
		t.Errorf("a worker that cannot work on the table: %+v", e)
	}
	// A sink that dies on everything gets there after minutes of its gate's backoff.
	beat(daemon.Info{Host: "shop-1", PID: 4711, Engine: engine.Status{Gate: "quarantined", GateReason: "the sink dies on every record", GateUntil: time.Now().Add(time.Hour)},
		Plugin: daemon.InfoPlugin{LastExit: "exit status 9"}})
	e := explained(t, dir, nil, "id-000001")
	if r := e.Because[0]; e.codes() != "gate_quarantined leased" || time.Until(moment(t, "the next try", r.Until)) < 50*time.Minute ||
		!strings.Contains(r.Say, "its last one ended with: exit status 9") || !strings.Contains(e.Do, "mend the sink") {
		t.Errorf("a quarantined connector: %+v", e)
	}
	beat(daemon.Info{Host: "shop-1", PID: 4711, Engine: engine.Status{MoreWaits: true}})
	if e := explained(t, dir, nil, "id-000001"); e.codes() != "destinations_wait leased" {
		t.Errorf("more destinations are away than are told of: %+v", e)
	}
	beat(daemon.Info{Host: "shop-1", PID: 4711, Engine: engine.Status{Draining: true}})
	if e := explained(t, dir, nil, "id-000001"); e.codes() != "worker_draining leased" {
		t.Errorf("a worker that stops: %+v", e)
	}
	if err := src.Release(t.Context(), "one", taken[0].Lease); err != nil {
		t.Fatal(err)
	}
	if e := explained(t, dir, nil, "id-000001"); e.codes() != "no_owner" || time.Since(moment(t, "free since", e.Because[0].Since)) > patience || e.Because[0].Worker.PID != 4711 {
		t.Errorf("given back: %+v", e)
	}
}

// TestExplainASinkThatIsAway: the gate is closed, and until when. Where each row has a destination of its own, one that is
// away is left alone, and the rows for it are told so, also those behind.
func TestExplainASinkThatIsAway(t *testing.T) {
	t.Parallel()
	away := closedPort(t)
	host, port, _ := strings.Cut(away, ":")
	dir := shopDir(t, fmt.Sprintf(`connectors:
  orders:
    source: {plugin: sqlite, path: ./shop.db, table: outbox, poll: {min: 5ms, max: 50ms}}
    sink: {plugin: webhook, url: "http://%s/"}
    delivery: {lease: 2s}
  tenants:
    source: {plugin: sqlite, path: ./shop.db, table: tenants, poll: {min: 5ms, max: 50ms}}
    sink: {plugin: webhook, url: "http://{route}:%s/", ssrf: {mode: "off", allow_hosts: [127.0.0.1]}, breaker: {min_requests: 1, open_for: 1h}}
    delivery: {lease: 2s, retry: {initial: 1ms, max: 1ms}}
`, away, port))
	s := openShop(t, dir)
	s.insert(2, 2)
	s.exec("INSERT INTO tenants (id, aggregateid, aggregatetype, payload) VALUES ('first', 'a', ?1, '{}'), ('second', 'a', ?1, '{}')", host)
	startDaemon(t, dir)
	e := explains(t, dir, "id-000002", "gate_closed leased")
	if r := e.Because[0]; !strings.Contains(r.Error.Message, "connection refused") || e.Do == "" {
		t.Errorf("%+v", e)
	}
	var r reason
	eventually(t, "a destination is left alone", func() (bool, string) {
		e = explained(t, dir, nil, "first")
		i := slices.IndexFunc(e.Because, func(r reason) bool { return r.Code == "destination_waits" })
		if i >= 0 {
			r = e.Because[i]
		}
		return i >= 0 && r.Error.Code == "breaker_open", fmt.Sprintf("%+v", e)
	})
	if !strings.Contains(r.Error.Message, away) || time.Until(moment(t, "the next try", r.Until)) < time.Minute {
		t.Errorf("%+v", r)
	}
	e = explained(t, dir, nil, "second")
	if behind, waits := e.find(t, "behind_pending"), e.find(t, "destination_waits"); behind.Row.ID != "first" || waits.Error.Code != "breaker_open" ||
		!strings.Contains(e.Do, "destination") { // and not: look at the row before
		t.Errorf("%+v", e)
	}
}

// TestExplainASuspect: what killed three daemons is known to be under suspicion, and what the next one will do with it.
func TestExplainASuspect(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, "")
	s.insert(1, 1)
	s.exec("UPDATE outbox SET type = 'parent'")
	for range 3 {
		startDaemon(t, dir).wait()
	}
	e := explains(t, dir, "id-000001", "in_flight_abandoned no_daemon suspected")
	if r := e.find(t, "suspected"); r.Crashes != 2 || !strings.Contains(r.Say, "2 crashes or hangs of 6") || e.Because[0].Send != 3 {
		t.Errorf("%+v", e)
	}
}

// closedPort is an address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestExplainWhoDidWhat: what a person did to a row is told of it afterwards, whatever came of it.
func TestExplainWhoDidWhat(t *testing.T) {
	t.Parallel()
	dir, s := failures(t, quickstart)
	operate(t, dir, "retry", "dead")
	operate(t, dir, "release", "held")
	for id, verb := range map[string]string{"dead": "retried", "held": "released"} {
		e := explained(t, dir, nil, id)
		if r := e.find(t, verb); !strings.HasPrefix(r.By, "cli:eve@") || moment(t, "its time", r.Since).IsZero() {
			t.Errorf("%+v", e)
		}
	}
	s.exec("UPDATE outbox SET state = 'dead' WHERE id = 'dead'")
	operate(t, dir, "skip", "dead")
	e := explained(t, dir, nil, "dead")
	if r := e.find(t, "skipped"); e.State != string(core.Skipped) || !strings.HasPrefix(r.By, "cli:eve@") || e.find(t, "failed_before").Error.Message != "the destination said no" {
		t.Errorf("%+v", e)
	}
	startDaemon(t, dir)
	e = explains(t, dir, "held", "published released")
	if e.Because[0].Send != 2 {
		t.Errorf("%+v", e)
	}
}

// TestExplainOneReceiptOnce: two tables of one database share its receipts.
func TestExplainOneReceiptOnce(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart+strings.NewReplacer("connectors:\n", "", "orders:", "mails:", "table: outbox", "table: mails", "out.jsonl", "mails.jsonl").Replace(quickstart))
	s := openShop(t, dir)
	s.exec("INSERT INTO connectd_receipt (command_id, consumer) VALUES ('gone', 'mailer')")
	if e := explained(t, dir, nil, "gone"); e.codes() != "never_committed receipt" || e.Connector != "" {
		t.Errorf("%+v", e)
	}
	s.exec("INSERT INTO connectd_cleaned (tbl, command_id, at) VALUES ('mails', 'gone', 1)")
	if e := explained(t, dir, nil, "gone"); e.codes() != "cleaned receipt" || e.Connector != "mails" {
		t.Errorf("%+v", e)
	}
	r := connectd(t, dir, "rows", "explain", "--connector", "orders", "--json", "gone")
	r.want(t, 1, `"code": "elsewhere"`, "connectd_outbox")
}

// TestExplainReceiptsOfEachState: what consumers reported is said whatever the row's state, with what it means.
func TestExplainReceiptsOfEachState(t *testing.T) {
	t.Parallel()
	dir, s := failures(t, quickstart)
	for _, id := range []string{"dead", "held", "skipped", "behind-dead"} {
		s.exec("INSERT INTO connectd_receipt (command_id, consumer) VALUES (?, 'billing')", id)
		e := explained(t, dir, nil, id)
		if r := e.find(t, "receipt").Receipt; r.Consumer != "billing" || r.Status != "done" {
			t.Errorf("%+v", e)
		}
		stopped := id == "dead" || id == "held"
		if got := strings.HasPrefix(e.Do, "do not send it again") && strings.HasSuffix(e.Do, "connectd rows skip "+id); got != stopped || stopped && e.Because[0].Code != "receipt" {
			t.Errorf("%+v", e)
		}
		connectd(t, dir, "rows", "show", id).want(t, 0, "receipt      Consumer billing reported it done at ")
		connectd(t, dir, "rows", "show", "--json", id).want(t, 0, `"receipts": [`, `"consumer": "billing"`)
	}
	for status, want := range map[string]string{"failed": "no completion", "started": "until a person has looked", "DONE": "counts for nothing"} {
		s.exec("PRAGMA ignore_check_constraints = on")
		s.exec("INSERT OR REPLACE INTO connectd_receipt (command_id, consumer, status) VALUES ('done', 'billing', ?)", status)
		e := explained(t, dir, nil, "done")
		if e.codes() != "published receipt not_done" || !strings.Contains(e.find(t, "receipt").Say, want) ||
			!strings.Contains(e.find(t, "not_done").Say, "does not send a published row again") || e.Do == "" {
			t.Errorf("%s: %+v", status, e)
		}
	}
	s.exec("INSERT INTO outbox (id, state) VALUES ('adopted', 'published')")
	if e := explained(t, dir, nil, "adopted"); e.codes() != "published" || e.Because[0].Send != 0 || !strings.Contains(e.Because[0].Say, "connectd has not sent it") {
		t.Errorf("%+v", e)
	}
	s.exec("UPDATE connectd_receipt SET status = 'done' WHERE command_id = 'done'")
	if e := explained(t, dir, nil, "done"); e.codes() != "published receipt" || e.Do != "" {
		t.Errorf("%+v", e)
	}
}

// TestExplainFarFuture: of a moment that is years away the date is said, and no number of days.
func TestExplainFarFuture(t *testing.T) {
	t.Parallel()
	dir := shopDir(t, quickstart)
	s := openShop(t, dir)
	s.exec("INSERT INTO outbox (id, payload, available_at) VALUES ('later', '{}', 9999999999999)")
	if say := explained(t, dir, nil, "later").find(t, "delayed").Say; !strings.Contains(say, "at 2286-11-20T17:46:39.999Z (available_at)") {
		t.Error(say)
	}
}
