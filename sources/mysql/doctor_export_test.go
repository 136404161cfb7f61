package mysql

import (
	"context"
	"time"

	"github.com/connectd/connectd/core"
)

// DiagnoseWith is Diagnose with another threshold for long transactions.
func DiagnoseWith(ctx context.Context, cfg Config, long time.Duration) core.Diagnosis {
	return diagnose(ctx, cfg, long)
}

// JudgeVersion is what is said of a server that is too old.
func JudgeVersion(ctx context.Context, version string) core.Diagnosis {
	d := &doctor{}
	d.version(ctx, version)
	return d.Diagnosis
}

// Unreachable is what is said to do when a server cannot be used.
func Unreachable(err error) string { return unreachable(err) }
