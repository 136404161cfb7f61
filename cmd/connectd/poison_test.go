package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRecordThatFailsEveryCallHoldsUpNoOther: a sink that answers the wrong number of outcomes, or an error for the whole
// call, does not say for which record. It is found, waits alone with what is known of it, and is never buried: it may be
// the sink's fault.
func TestRecordThatFailsEveryCallHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for kind, words := range map[string]string{
		"count": "outcomes for 1 records",
		"error": "no template for this record",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, s := tortured(t, "")
			s.insert(40, 40)
			s.exec("UPDATE outbox SET type = ? WHERE id = 'id-000007'", kind)
			d := startDaemon(t, dir)
			s.published(39)
			s.insert(20, 20) // it is in nobody's way later either
			s.published(58)  // but for the one behind it, of its key
			d.eventually("its last error is that of a call with it alone", func() (bool, string) {
				r := connectd(t, dir, "rows", "show", "id-000007")
				return strings.Contains(r.stdout, "last error   unknown: ") && strings.Contains(r.stdout, words), r.stdout
			})
			state, attempts := rowState(t, s, "id-000007")
			if state != "pending" || attempts != 0 {
				t.Errorf("it is %s after %d attempts", state, attempts)
			}
			connectd(t, dir, "rows", "explain", "id-000007").want(t, 0, "Its last send failed", words, "It is tried again")
			connectd(t, dir, "rows", "explain", "id-000047").want(t, 0, "waits behind row 7 (id id-000007)")
			d.eventually("the connector runs between its tries", func() (bool, string) {
				c := statusOf(t, dir)
				return c.State == "running" && c.Lag.Rows == 2 && c.Dead+c.Held == 0, fmt.Sprintf("%+v", c)
			})
			for _, a := range arrivals(t, dir) {
				if a.ID == "id-000007" {
					t.Error("it arrived")
				}
			}
			s.exec("UPDATE outbox SET type = 'mended' WHERE id = 'id-000007'")
			s.published(60)
			audit(t, dir, 60)
		})
	}
}

// TestRecordThatHangsInCompanyIsBuriedAlone: it shares its batch with others at first. They are delivered, and nobody is
// charged an attempt for a call that did not end.
func TestRecordThatHangsInCompanyIsBuriedAlone(t *testing.T) {
	t.Parallel()
	dir, s := tortured(t, ", timeout: 250ms")
	s.insert(30, 5)
	s.exec("UPDATE outbox SET type = 'hang' WHERE id = 'id-000007'")
	d := startDaemon(t, dir)
	d.eventually("one dead, the others published", func() (bool, string) {
		dead, published := s.count("dead"), s.count("published")
		return dead == 1 && published == 29, fmt.Sprint(dead, published)
	})
	connectd(t, dir, "rows", "explain", "id-000007").want(t, 0, "in 6 crashes or hangs", "crash: no answer within 250ms although the sink is healthy")
	connectd(t, dir, "rows", "show", "id-000007").want(t, 0, "state        dead", "crashes      6 of 6", "attempts     0")
	var attempts int
	if err := s.db.QueryRow("SELECT max(attempts) FROM outbox").Scan(&attempts); err != nil || attempts != 0 {
		t.Errorf("rows were charged %d attempts, %v", attempts, err)
	}
	came := map[string]bool{}
	for _, a := range arrivals(t, dir) {
		came[a.ID] = true
	}
	if len(came) != 29 || came["id-000007"] {
		t.Errorf("%d different rows arrived, want the 29 others", len(came))
	}
	if _, metrics := d.get("/metrics"); !strings.Contains(metrics, `connectd_dead_rows_total{connector="orders",reason="crash"} 1`) {
		t.Error("the metrics do not count the dead row")
	}
}

// rowState reads a row as the application may.
func rowState(t *testing.T, s *shop, id string) (state string, attempts int) {
	t.Helper()
	if err := s.db.QueryRow("SELECT state, attempts FROM outbox WHERE id = ?", id).Scan(&state, &attempts); err != nil {
		t.Fatal(err)
	}
	return state, attempts
}

// statusOf is the connector orders in `status --json`.
func statusOf(t *testing.T, dir string) connectorStatus {
	t.Helper()
	r := connectd(t, dir, "status", "--json")
	var answer struct{ Connectors []connectorStatus }
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	i := slices.IndexFunc(answer.Connectors, func(c connectorStatus) bool { return c.Name == "orders" })
	if i < 0 {
		t.Fatalf("no connector orders: %s", r.stdout)
	}
	return answer.Connectors[i]
}
