package webhook

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
)

// Keys run beside each other, and each in order. A slow one holds up no other: https://github.com/livekit/protocol/pull/784
func TestKeysRunBesideEachOther(t *testing.T) {
	r := receive(t)
	others := make(chan struct{})
	var arrived sync.WaitGroup
	const keys, each = 10, 5
	arrived.Add((keys - 1) * each)
	go func() {
		arrived.Wait()
		close(others)
	}()
	r.always(answer{do: func(w http.ResponseWriter, request *http.Request) {
		if request.Header.Get("Connectd-Key") == "key-0" {
			select { // its first record takes until all records of all other keys have come
			case <-others:
			case <-request.Context().Done():
			}
		} else {
			arrived.Done()
		}
		w.WriteHeader(http.StatusOK)
	}})
	s := opened(t, to(r.url(), ""))
	var batch []core.Record
	for i := range keys * each {
		batch = append(batch, record(fmt.Sprint(i), fmt.Sprintf("key-%d", i%keys)))
	}
	for i, o := range send(t, s, batch...) {
		if o.Kind != core.Delivered {
			t.Fatalf("record %d: %+v", i, o)
		}
	}
	wantOrder(t, r, batch)
}

// wantOrder checks that each key's records arrived once and in the batch's order.
func wantOrder(t *testing.T, r *receiver, batch []core.Record) {
	t.Helper()
	wanted, got := map[string][]string{}, map[string][]string{}
	for _, record := range batch {
		wanted[record.Key] = append(wanted[record.Key], record.ID)
	}
	for _, a := range r.got() {
		for _, record := range a.records(t) {
			got[record.Key] = append(got[record.Key], record.ID)
		}
	}
	for key := range wanted {
		if key != "" && !slices.Equal(got[key], wanted[key]) {
			t.Errorf("key %q arrived as %v, want %v", key, got[key], wanted[key])
		}
	}
}

// One failing record stops everything, or is passed by those behind it:
// https://github.com/redpanda-data/connect/issues/414, https://github.com/debezium/debezium/pull/3755
func TestBehindARecordThatFailed(t *testing.T) {
	r := receive(t)
	r.always(answer{do: func(w http.ResponseWriter, request *http.Request) {
		switch request.Header.Get("Webhook-Id") {
		case "a2":
			w.WriteHeader(http.StatusInternalServerError)
		case "b1":
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}})
	s := opened(t, to(r.url(), ""))
	outcomes := send(t, s, record("a1", "a"), record("b1", "b"), record("a2", "a"), record("u1", ""), record("a3", "a"),
		record("b2", "b"), record("c1", "c"), record("u2", ""), record("a4", "a"))
	want(t, outcomes, core.Delivered, core.Permanent, core.Retryable, core.Delivered, core.NotAttempted,
		core.NotAttempted, core.Delivered, core.Delivered, core.NotAttempted)
	wantRequests(t, r, 6)
}

// lists returns a receiver that takes lists without a guilty record, and its settings with some more.
func lists(t testing.TB, code int, more string) (*receiver, *Sink) {
	r := receive(t)
	r.always(answer{do: func(w http.ResponseWriter, request *http.Request) {
		if refuses(arrivalOf(request).records(t)) {
			w.WriteHeader(code)
		}
	}})
	return r, opened(t, to(r.url(), `, "batch": {"max_rows": 16`+more+`}`))
}

func guilty(r core.Record) core.Record {
	r.Type = refused
	return r
}

// One record fails its neighbours in the same request. It is found by halves, and alone is to blame:
// https://github.com/confluentinc/librdkafka/issues/488
func TestHalvesFindTheGuiltyRecord(t *testing.T) {
	for _, code := range []int{400, 413, 422} {
		for place := range 16 {
			r, s := lists(t, code, "")
			var batch []core.Record
			for i := range 16 {
				batch = append(batch, record(fmt.Sprint(i), fmt.Sprintf("key-%d", i%4)))
			}
			batch[place] = guilty(batch[place])
			wanted := make([]core.OutcomeKind, len(batch))
			for i := range batch {
				switch {
				case i == place:
					wanted[i] = core.Permanent
				case i > place && i%4 == place%4:
					wanted[i] = core.NotAttempted
				default:
					wanted[i] = core.Delivered
				}
			}
			outcomes := send(t, s, batch...)
			want(t, outcomes, wanted...)
			wantFailure(t, outcomes[place], core.Permanent, core.ScopeDefault, false, fmt.Sprintf("http_%d", code))
			if n, _ := r.counts(); n > 1+2*4 {
				t.Errorf("%d: to find record %d of 16 took %d requests", code, place, n)
			}
			wantDelivered(t, r, batch, outcomes)
		}
	}
}

// wantDelivered checks that exactly the records that were answered delivered are there, once and in order.
func wantDelivered(t *testing.T, r *receiver, batch []core.Record, outcomes []core.Outcome) {
	t.Helper()
	var delivered []core.Record
	for i := range batch {
		if outcomes[i].Kind == core.Delivered {
			delivered = append(delivered, batch[i])
		}
	}
	there := map[string]int{}
	last := map[string]int{}
	for at, record := range r.records(t) {
		there[record.ID]++
		last[record.ID] = at
	}
	if len(there) != len(delivered) {
		t.Errorf("%d records are there, %d were answered delivered", len(there), len(delivered))
	}
	previous := map[string]int{}
	for _, record := range delivered {
		if there[record.ID] != 1 {
			t.Errorf("record %s is there %d times", record.ID, there[record.ID])
		}
		if before, ok := previous[record.Key]; ok && record.Keyed && last[record.ID] < before {
			t.Errorf("record %s arrived before the one it follows", record.ID)
		}
		previous[record.Key] = last[record.ID]
	}
}

// However many are guilty, each is found, and the receiver is not asked more than twice a record.
func TestHalvesWhenManyAreGuilty(t *testing.T) {
	r, s := lists(t, 422, "")
	var batch []core.Record
	for i := range 16 {
		batch = append(batch, guilty(record(fmt.Sprint(i), fmt.Sprint(i))))
	}
	for i, o := range send(t, s, batch...) {
		if o.Kind != core.Permanent {
			t.Errorf("record %d: %+v", i, o)
		}
	}
	wantRequests(t, r, 16+15)
}

// A failure that is nobody's fault is not looked for.
func TestListThatFailsAsAWhole(t *testing.T) {
	r, s := lists(t, 500, "")
	outcomes := send(t, s, record("a1", "a"), guilty(record("b1", "b")), record("a2", "a"), record("u", ""))
	want(t, outcomes, core.Retryable, core.Retryable, core.Retryable, core.Retryable) // all were sent
	wantRequests(t, r, 1)
	r.outage(t)
	outcomes = send(t, s, record("a1", "a"), record("b1", "b"), record("a2", "a"), record("u", ""))
	want(t, outcomes, core.Retryable, core.Retryable, core.NotAttempted, core.Retryable) // nothing was
}

// A key with more records than a request takes goes in one request after another, and other keys beside it.
func TestListsOfLongKeys(t *testing.T) {
	r, s := lists(t, 422, "")
	var batch []core.Record
	for i := range 100 {
		key := "long"
		if i%5 == 0 {
			key = fmt.Sprint(i % 20)
		}
		batch = append(batch, record(fmt.Sprint(i), key))
	}
	outcomes := send(t, s, batch...)
	for i, o := range outcomes {
		if o.Kind != core.Delivered {
			t.Fatalf("record %d: %+v", i, o)
		}
	}
	wantDelivered(t, r, batch, outcomes)
	for _, a := range r.got() {
		if !slices.IsSortedFunc(a.records(t), func(x, y core.Record) int {
			return strings.Compare(fmt.Sprintf("%03s", x.ID), fmt.Sprintf("%03s", y.ID))
		}) {
			t.Error("the records of a request are not in the batch's order")
		}
	}
	if n, _ := r.counts(); n > 100/16+2 {
		t.Errorf("100 records took %d requests of up to 16", n)
	}
}

// Requests with several rows run beside each other, too.
func TestListsRunBesideEachOther(t *testing.T) {
	r, s := lists(t, 422, "")
	var both sync.WaitGroup
	both.Add(2)
	r.always(answer{do: func(http.ResponseWriter, *http.Request) {
		both.Done()
		both.Wait() // for ever if the second comes after the first
	}})
	var batch []core.Record
	for i := range 32 {
		batch = append(batch, record(fmt.Sprint(i), fmt.Sprint(i)))
	}
	for i, o := range send(t, s, batch...) {
		if o.Kind != core.Delivered {
			t.Fatalf("record %d: %+v", i, o)
		}
	}
	wantRequests(t, r, 2)
}

// A receiver that answers for each row takes a row behind one that it refused. So a request has one row of a key.
func TestResultsOfRows(t *testing.T) {
	r := receive(t)
	r.always(answer{do: func(w http.ResponseWriter, request *http.Request) {
		var results []string
		keys := map[string]bool{}
		for _, record := range arrivalOf(request).records(t) {
			status := 200
			if record.Type == refused {
				status = 422
			}
			if keys[record.Key] && record.Keyed {
				t.Errorf("a request has two records of key %q", record.Key)
			}
			keys[record.Key] = true
			results = append(results, fmt.Sprintf(`{"id": %q, "status": %d}`, record.ID, status))
		}
		w.WriteHeader(http.StatusMultiStatus)
		_, _ = io.WriteString(w, `{"results": [`+strings.Join(results, ",")+`]}`)
	}})
	s := opened(t, to(r.url(), `, "batch": {"max_rows": 16, "per_row_results": "/results"}`))
	outcomes := send(t, s, record("a1", "a"), record("a2", "a"), guilty(record("b1", "b")), record("u1", ""), record("b2", "b"),
		record("a3", "a"), record("u2", ""), record("c1", "c"))
	want(t, outcomes, core.Delivered, core.Delivered, core.Permanent, core.Delivered, core.NotAttempted, core.Delivered,
		core.Delivered, core.Delivered)
	wantRequests(t, r, 3)

	var batch []core.Record
	for i := range 48 {
		batch = append(batch, record(fmt.Sprint(i), fmt.Sprint(i%16)))
	}
	for i, o := range send(t, s, batch...) {
		if o.Kind != core.Delivered {
			t.Errorf("record %d: %+v", i, o)
		}
	}
	wantRequests(t, r, 3+3)
}

// What is wrong with the one receiver ends the call: the rest of its records would only meet the same.
func TestReceiverThatRefusesEverybody(t *testing.T) {
	for code, kind := range map[int]core.OutcomeKind{403: core.Retryable, 429: core.Throttled} {
		r := receive(t)
		r.always(after(20*time.Millisecond, status(code, "Retry-After", "7")))
		s := opened(t, to(r.url(), ""))
		var batch []core.Record
		for i := range 300 {
			batch = append(batch, record(fmt.Sprint(i), fmt.Sprint(i)))
		}
		failed, rest := 0, 0
		for i, o := range send(t, s, batch...) {
			switch {
			case o.Kind == kind && o.Scope != core.ScopeKey && o.RetryAfter >= 7*time.Second && o.RetryAfter < 9*time.Second:
				failed++
			case o.Kind == core.NotAttempted && o.Scope == core.ScopeSink && o.Code == fmt.Sprintf("http_%d", code):
				rest++
			default:
				t.Errorf("%d: record %d: %+v", code, i, o)
			}
		}
		if n, _ := r.counts(); n != failed || failed > 2*firstWidth || rest != 300-failed {
			t.Errorf("%d: of 300 records %d failed and %d were not sent; the receiver had %d requests", code, failed, rest, n)
		}
	}
}

// The same of one receiver among many is about its records alone.
func TestOneOfManyRefusesEverybody(t *testing.T) {
	bad, fine := receive(t), receive(t)
	bad.always(status(403))
	s := manyOpened(t, "", bad, fine)
	var batch []core.Record
	for i := range 60 {
		r := record(fmt.Sprint(i), fmt.Sprint(i))
		r.Route = fine.url()
		if i%2 == 0 {
			r.Route = bad.url()
		}
		batch = append(batch, r)
	}
	for i, o := range send(t, s, batch...) {
		if i%2 == 1 {
			want(t, []core.Outcome{o}, core.Delivered)
		} else if o.Scope != core.ScopeKey || o.Kind != core.Retryable && (o.Kind != core.Throttled || o.RetryAfter < 20*time.Second) {
			t.Errorf("record %d: %+v", i, o)
		}
	}
	if n, _ := bad.counts(); n < 10 || n > 10+firstWidth {
		t.Errorf("the receiver that refuses everybody had %d requests, want 10 until its breaker opens", n)
	}
	if err := s.Health(t.Context()); !errors.Is(err, core.ErrNoHealth) {
		t.Errorf("Health of many receivers: %v", err)
	}
}

// manyOpened returns a sink whose rows name their receiver in the route.
func manyOpened(t testing.TB, more string, receivers ...*receiver) *Sink {
	t.Helper()
	var ports []string
	for _, r := range receivers {
		ports = append(ports, r.address[strings.LastIndexByte(r.address, ':')+1:])
	}
	return opened(t, to("{route}", `, "ssrf": {"allow_cidrs": ["127.0.0.0/8"], "allow_ports": [`+strings.Join(ports, ",")+`]}`+more))
}
