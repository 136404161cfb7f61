package daemon

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/engine"
)

// maxReasons bounds the values of the reason label: a sink may invent a code for every record, and each new value
// would be a new time series. Later reasons are counted as "other".
const maxReasons = 50

// metrics holds the daemon's counters and histograms in a registry of its own. Gauges are read when they are scraped,
// by gauges.
type metrics struct {
	registry *prometheus.Registry

	rowsRead   *prometheus.CounterVec
	readErrors *prometheus.CounterVec
	sent       *prometheus.CounterVec
	outcomes   *prometheus.CounterVec
	attempts   *prometheus.CounterVec
	retries    *prometheus.CounterVec
	settled    *prometheus.CounterVec
	dead       *prometheus.CounterVec
	takenOver  *prometheus.CounterVec
	recovered  *prometheus.CounterVec
	lost       *prometheus.CounterVec
	released   *prometheus.CounterVec
	stepErrors *prometheus.CounterVec
	cleaned    *prometheus.CounterVec
	receipts   *prometheus.CounterVec
	forgotten  *prometheus.CounterVec

	unknown *prometheus.GaugeVec

	cleanTime *prometheus.HistogramVec
	readTime  *prometheus.HistogramVec
	batchSize *prometheus.HistogramVec
	callTime  *prometheus.HistogramVec
	stepTime  *prometheus.HistogramVec
}

// newMetrics registers everything; build says which program this is.
func newMetrics(version, revision string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "connectd", Name: name, Help: help},
			append([]string{"connector"}, labels...))
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "connectd", Name: name, Help: help, Buckets: buckets},
			[]string{"connector"})
		m.registry.MustRegister(h)
		return h
	}
	m.rowsRead = counter("rows_read_total", "Outbox rows read into memory.")
	m.readErrors = counter("read_errors_total", "Reads of the outbox table that failed.")
	m.sent = counter("sends_total", "Records handed to the sink, repeats included.")
	m.outcomes = counter("outcomes_total", "The sink's answers by kind; call_failed counts records whose call failed as a whole.", "outcome")
	m.attempts = counter("attempts_total", "Failures that count towards a row's limits.")
	m.retries = counter("retries_total", "Rows put back to be tried again later.")
	m.settled = counter("settled_rows_total", "Rows by the state they were settled to.", "state")
	m.dead = counter("dead_rows_total", "Rows buried, by reason.", "reason")
	m.takenOver = counter("leases_taken_over_total", "Leases taken over from a worker that let them run out.")
	m.recovered = counter("rows_recovered_total", "Rows found announced but not settled when their partition was acquired; they may have been sent.")
	m.lost = counter("leases_lost_total", "Leases taken by another worker while this one held them (lease_not_owned).")
	m.released = counter("leases_released_total", "Leases given back.")
	m.stepErrors = counter("step_errors_total", "Announce-and-settle transactions that failed.")

	m.cleaned = counter("cleaned_rows_total", "Rows that this worker removed when their retention had passed, by their state.", "state")
	m.receipts = counter("receipts_total", "Receipts that came over HTTP, by status and by what became of them.", "status", "answer")
	m.forgotten = counter("cleaned_receipts_total", "Receipts that this worker removed when their retention had passed, by what was known of their row: cleaned or unknown.", "row")
	m.unknown = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "connectd", Name: "unknown_receipts", Help: "Receipts of commands that no outbox table of the database knows, when the worker that cleans last looked; 0 on other workers.",
	}, []string{"connector"})
	m.registry.MustRegister(m.unknown)

	fast := prometheus.ExponentialBuckets(0.0005, 2, 14) // 0.5 ms to 4 s
	m.readTime = histogram("read_duration_seconds", "Time of one read of the outbox table.", fast)
	m.cleanTime = histogram("clean_duration_seconds", "Time for which one batch of the cleaner locked rows.",
		[]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5}) // 0.1 s is what it must stay below
	m.batchSize = histogram("batch_records", "Records in a batch.", prometheus.ExponentialBuckets(1, 2, 14)) // 1 to 8192
	m.callTime = histogram("call_duration_seconds", "Time of one delivery call to the sink.",
		prometheus.ExponentialBuckets(0.001, 2, 16)) // 1 ms to 33 s
	m.stepTime = histogram("step_duration_seconds", "Time of one announce-and-settle transaction.", fast)

	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "connectd", Name: "build_info", Help: "Always 1; the labels say which program this is.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision, "goversion": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// observer counts for one connector. It implements engine.Observer.
type observer struct {
	m    *metrics
	name string
	rate *meter

	rowsRead, readErrors, sent, attempts, retries prometheus.Counter
	takenOver, recovered, lost, released          prometheus.Counter
	stepErrors                                    prometheus.Counter
	readTime, batchSize, callTime, stepTime       prometheus.Observer

	// What the heartbeat tells too.
	retried, tookOver, lostLeases atomic.Int64

	mu      sync.Mutex
	reasons map[string]struct{}
}

var _ engine.Observer = (*observer)(nil)

// observe returns the observer of one connector, with its series present from the start: a counter that appears only
// with its first event hides that event from rate().
func (m *metrics) observe(connector string, rate *meter) *observer {
	o := &observer{
		m: m, name: connector, rate: rate, reasons: map[string]struct{}{},
		rowsRead: m.rowsRead.WithLabelValues(connector), readErrors: m.readErrors.WithLabelValues(connector),
		sent: m.sent.WithLabelValues(connector), attempts: m.attempts.WithLabelValues(connector),
		retries: m.retries.WithLabelValues(connector), takenOver: m.takenOver.WithLabelValues(connector),
		recovered: m.recovered.WithLabelValues(connector), lost: m.lost.WithLabelValues(connector),
		released: m.released.WithLabelValues(connector), stepErrors: m.stepErrors.WithLabelValues(connector),
		readTime: m.readTime.WithLabelValues(connector), batchSize: m.batchSize.WithLabelValues(connector),
		callTime: m.callTime.WithLabelValues(connector), stepTime: m.stepTime.WithLabelValues(connector),
	}
	for _, kind := range []core.OutcomeKind{core.Delivered, core.Retryable, core.Permanent, core.Throttled, core.NotAttempted} {
		m.outcomes.WithLabelValues(connector, kind.String())
	}
	m.outcomes.WithLabelValues(connector, callFailed)
	for _, state := range []core.State{core.Published, core.Dead, core.Skipped} {
		m.cleaned.WithLabelValues(connector, string(state))
	}
	for _, status := range []core.ReceiptStatus{core.ReceiptDone, core.ReceiptFailed} {
		m.receipts.WithLabelValues(connector, string(status), string(core.ReceiptStored))
	}
	for _, place := range []core.RowPlace{core.RowCleaned, core.RowUnknown} {
		m.forgotten.WithLabelValues(connector, string(place))
	}
	m.cleanTime.WithLabelValues(connector)
	m.unknown.WithLabelValues(connector)
	for _, state := range []core.State{core.Published, core.Dead, core.Held} {
		m.settled.WithLabelValues(connector, string(state))
	}
	return o
}

const callFailed = "call_failed"

// Read counts one read of the source.
func (o *observer) Read(rows int, took time.Duration, err error) {
	o.readTime.Observe(took.Seconds())
	o.rowsRead.Add(float64(rows))
	if err != nil {
		o.readErrors.Inc()
	}
}

// Called counts one call of the sink.
func (o *observer) Called(records int, took time.Duration, outcomes map[core.OutcomeKind]int, err error) {
	o.callTime.Observe(took.Seconds())
	o.batchSize.Observe(float64(records))
	o.sent.Add(float64(records))
	if err != nil || outcomes == nil {
		o.m.outcomes.WithLabelValues(o.name, callFailed).Add(float64(records))
		return
	}
	for kind, n := range outcomes {
		o.m.outcomes.WithLabelValues(o.name, kind.String()).Add(float64(n))
	}
	o.attempts.Add(float64(outcomes[core.Retryable] + outcomes[core.Permanent] + outcomes[core.Unspecified]))
}

// Settled counts one committed settlement.
func (o *observer) Settled(states map[core.State]int, retried int, deadBy map[string]int) {
	for state, n := range states {
		o.m.settled.WithLabelValues(o.name, string(state)).Add(float64(n))
	}
	o.rate.add(int64(states[core.Published]))
	o.retries.Add(float64(retried))
	o.retried.Add(int64(retried))
	for reason, n := range deadBy {
		o.m.dead.WithLabelValues(o.name, o.bounded(reason)).Add(float64(n))
	}
}

// bounded returns the reason, or "other" when there are too many.
func (o *observer) bounded(reason string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.reasons[reason]; known {
		return reason
	}
	if len(o.reasons) >= maxReasons {
		return "other"
	}
	o.reasons[reason] = struct{}{}
	return reason
}

// Stepped counts one announce-and-settle transaction.
func (o *observer) Stepped(took time.Duration, err error) {
	o.stepTime.Observe(took.Seconds())
	if err != nil {
		o.stepErrors.Inc()
	}
}

// Acquired counts leases taken over and the rows that were recovered with them.
func (o *observer) Acquired(takenOver, recovered int) {
	o.takenOver.Add(float64(takenOver))
	o.tookOver.Add(int64(takenOver))
	o.recovered.Add(float64(recovered))
}

// Lost counts leases that another worker took.
func (o *observer) Lost(partitions int) {
	o.lost.Add(float64(partitions))
	o.lostLeases.Add(int64(partitions))
}

// Released counts leases given back.
func (o *observer) Released(partitions int) { o.released.Add(float64(partitions)) }
