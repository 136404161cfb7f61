package postgres

import (
	"context"
	"time"

	"github.com/connectd/connectd/core"
)

// DiagnoseWith is Diagnose with other thresholds.
func DiagnoseWith(ctx context.Context, cfg Config, transaction time.Duration, dead int64) core.Diagnosis {
	return diagnose(ctx, cfg, thresholds{transaction: transaction, dead: dead})
}

// JudgeVersion is what is said of a server's version.
func JudgeVersion(number int, text string) core.Diagnosis {
	d := &doctor{}
	d.version(number, text)
	return d.Diagnosis
}

// Unreachable is what is said to do when a server cannot be used.
func Unreachable(err error) string { return unreachable(err) }
