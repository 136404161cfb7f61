package daemon

import "github.com/prometheus/client_golang/prometheus"

// gauges are the metrics that are read when they are scraped.
type gauges struct {
	snapshot func() []Health
	all      []*prometheus.Desc

	ready, lag, due, dead, held, sending, oldestDue, oldest *prometheus.Desc
	heldBack, heldBackFor                                   *prometheus.Desc
	inFlight, queued, gate, leases                          *prometheus.Desc
	pluginUp, pluginRestarts, pluginUptime                  *prometheus.Desc
}

// newGauges returns a collector over the connectors' health.
func newGauges(snapshot func() []Health) *gauges {
	g := &gauges{snapshot: snapshot}
	desc := func(name, help string) *prometheus.Desc {
		d := prometheus.NewDesc("connectd_"+name, help, []string{"connector"}, nil)
		g.all = append(g.all, d)
		return d
	}
	g.ready = desc("connector_ready", "1 when the connector reads its source and its sink takes records.")
	g.lag = desc("lag_rows", "Rows not yet published; counting stops at a bound, 100000 on SQLite. Every daemon on a table reports the same figure.")
	g.due = desc("due_rows", "Pending rows that are due now.")
	g.dead = desc("dead_rows", "Rows that are dead and wait for a person.")
	g.held = desc("held_rows", "Rows that are held and wait for a person.")
	g.sending = desc("sending_rows", "Rows announced and not yet settled, by any worker.")
	g.oldestDue = desc("oldest_due_age_seconds", "Age of the oldest row that is due, 0 without one.")
	g.oldest = desc("oldest_undelivered_age_seconds", "Age of the oldest pending row, 0 without one.")
	g.heldBack = desc("held_back_rows", "Pending rows that wait for an older transaction, with ordering: commit.")
	g.heldBackFor = desc("held_back_transaction_age_seconds", "Age of the transaction that they wait for, 0 without one.")
	g.inFlight = desc("in_flight_batches", "Batches announced by this worker and not settled.")
	g.queued = desc("queued_rows", "Rows in this worker's memory.")
	g.gate = desc("gate_open", "1 when the connector may send, 0 while it waits for its sink.")
	g.leases = desc("leases_held", "Partitions leased by this worker.")
	g.pluginUp = desc("plugin_up", "1 when the sink's process is running and open.")
	g.pluginRestarts = desc("plugin_restarts_total", "How often the sink's process was started again.")
	g.pluginUptime = desc("plugin_uptime_seconds", "Age of the sink's present process.")
	return g
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range g.all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	for _, h := range g.snapshot() {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, h.Name)
		}
		gauge(g.ready, number(h.Ready))
		gauge(g.inFlight, float64(h.Engine.InFlight))
		gauge(g.queued, float64(h.Engine.Queued))
		gauge(g.gate, number(h.Engine.Gate == "open"))
		gauge(g.leases, float64(h.Engine.Owned))
		gauge(g.pluginUp, number(h.Plugin.Up))
		gauge(g.pluginUptime, h.Plugin.Uptime.Seconds())
		ch <- prometheus.MustNewConstMetric(g.pluginRestarts, prometheus.CounterValue, float64(h.Plugin.Restarts), h.Name)
		if h.Holdup != nil {
			gauge(g.heldBack, float64(h.Holdup.Rows))
			gauge(g.heldBackFor, h.Holdup.For.Seconds())
		} else {
			gauge(g.heldBack, 0)
			gauge(g.heldBackFor, 0)
		}
		if h.Lag == nil {
			continue
		}
		gauge(g.lag, float64(h.Lag.Pending))
		gauge(g.due, float64(h.Lag.Due))
		gauge(g.dead, float64(h.Lag.Dead))
		gauge(g.held, float64(h.Lag.Held))
		gauge(g.sending, float64(h.Lag.InFlight))
		gauge(g.oldestDue, h.Lag.OldestDue.Seconds())
		gauge(g.oldest, h.Lag.Oldest.Seconds())
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
