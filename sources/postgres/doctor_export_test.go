package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/connectd/connectd/core"
)

// DiagnoseWith is Diagnose with other thresholds; where one is 0, it is the usual one.
func DiagnoseWith(ctx context.Context, cfg Config, check, transaction time.Duration, dead int64) core.Diagnosis {
	return diagnose(ctx, cfg, thresholds{cmp.Or(check, usual.check), cmp.Or(transaction, usual.transaction), cmp.Or(dead, usual.dead)})
}

// JudgeVersion is what is said of a server's version.
func JudgeVersion(number int, text string) core.Diagnosis {
	d := &doctor{}
	d.version(number, text)
	return d.Diagnosis
}

// Unreachable is what is said to do when a server cannot be used.
func Unreachable(err error) string { return unreachable(err) }
