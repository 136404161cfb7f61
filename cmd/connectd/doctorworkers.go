package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/connectd/connectd/cmd/connectd/daemon"
	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/config"
)

// alive are the workers whose heartbeat is young enough.
func alive(d *core.Diagnosis, c config.Connector) (list []core.WorkerInfo) {
	for _, w := range d.Workers {
		if w.Live(time.Duration(c.Delivery.Lease)) {
			list = append(list, w)
		}
	}
	return list
}

// judgeWorkers says what the workers and their leases tell. An expired lease is taken over within a poll or two when
// somebody lives, so one that stays expired is a sign.
func judgeWorkers(d *core.Diagnosis, c config.Connector) {
	living := alive(d, c)
	lease := time.Duration(c.Delivery.Lease)
	held, stale := 0, 0
	var longest time.Duration
	for _, l := range d.Leases {
		switch {
		case l.Owner == "":
		case l.Left > 0:
			held++
		case -l.Left > lease:
			stale++
			longest = max(longest, -l.Left)
		}
	}
	for _, w := range living {
		info, err := daemon.ParseInfo(w.Info)
		switch {
		case err != nil:
			d.Warn("workers", "a worker published what cannot be read: "+err.Error(), "upgrade connectd here")
		case info.Engine.SourceError != "":
			d.Warn("workers", fmt.Sprintf("the worker with pid %d of %s cannot work on the table: %s", info.PID, info.Host, info.Engine.SourceError), "look into its log")
		}
	}
	switch {
	case len(living) == 0 && len(d.Workers) == 0:
		d.Fine("workers", "no daemon runs")
	case len(living) == 0:
		d.Warn("workers", fmt.Sprintf("no worker is alive, and %d ended without taking leave", len(d.Workers)), "start a daemon: it takes over what they left")
	default:
		d.Fine("workers", "%s alive, with %d of %d partitions", counted(len(living), "worker"), held, len(d.Leases))
	}
	switch {
	case stale > 0 && len(living) > 0:
		d.Warn("leases", fmt.Sprintf("%s expired up to %s ago and nobody took over, though a worker is alive", counted(stale, "lease"), span(longest)),
			"look into the daemons' logs, and for a transaction that keeps the rows of connectd_lease locked")
	case stale > 0:
		d.Warn("leases", fmt.Sprintf("%s of workers that are gone; the rows they had in flight may have been sent", counted(stale, "lease")), "start a daemon: it takes them over")
	default:
		d.Fine("leases", "none is left over")
	}
}

// judgeReceipts: where the retention waits for receipts, none would ever let a row be cleaned up.
func judgeReceipts(d *core.Diagnosis, c config.Connector) {
	switch {
	case !c.Retention.RequireReceipt:
	case d.Receipts:
		d.Fine("receipts", "there are some")
	default:
		d.Warn("receipts", "retention.require_receipt is on and no receipt is stored: until there are some, no published row is cleaned up",
			"let the consumers write their receipts into connectd_receipt or send them to a daemon; where a webhook's 2xx says that the work is done set its receipt: on_2xx; or turn retention.require_receipt off")
	}
}

// here returns what a living worker of this machine published, if there is one.
func here(d *core.Diagnosis, c config.Connector) (daemon.Info, bool) {
	host, err := os.Hostname()
	if err != nil || !d.Looked {
		return daemon.Info{}, false
	}
	for _, w := range alive(d, c) {
		if info, err := daemon.ParseInfo(w.Info); err == nil && info.PID > 0 && strings.EqualFold(info.Host, host) {
			return info, true
		}
	}
	return daemon.Info{}, false
}
