package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/config"
)

// auditTrial bounds the trial of an audit's queries.
const auditTrial = 10 * time.Second

// judgeAudit tries what an audit asks, and reads nothing: one that can never run would else be noticed when it is needed.
func judgeAudit(ctx context.Context, d *core.Diagnosis, c config.Connector) {
	ctx, cancel := context.WithTimeout(ctx, auditTrial)
	defer cancel()
	req := audited(c)
	req.Dry, req.Timeout = true, auditTrial
	source, err := openToAudit(ctx, c, slog.New(slog.DiscardHandler))
	if err == nil {
		defer func() { _ = source.Close() }()
		_, err = source.Audit(ctx, req)
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		d.Warn("audit", fmt.Sprintf("it could not be tried within %v: %v", auditTrial, err), "look at what the server does meanwhile, and try again")
	case err != nil:
		d.Fault("audit", "it cannot run: "+err.Error(), "where that names audit.events, correct it ("+c.Pos.String()+": table, key, where, command or join) or grant the source's user SELECT on that table; "+
			"else grant it SELECT on what is named")
	case req.Events == nil:
		d.Fine("audit", "it can run; nothing says which commands there must be (audit.events)")
	default:
		d.Fine("audit", "it can run, with audit.events")
	}
}
