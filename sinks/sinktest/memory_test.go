package sinktest

import (
	"context"
	"errors"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/memory"
)

// memoryHarness is the reference: the memory sink and what it keeps as its own destination.
func memoryHarness(testing.TB) Harness {
	s := memory.NewSink()
	s.Decide(func(r core.Record) core.Outcome {
		if r.Type == "refuse" {
			return core.Outcome{Kind: core.Permanent, Code: "refused", Message: "refused by its type"}
		}
		return core.Outcome{Kind: core.Delivered}
	})
	inTime := func(ctx context.Context, _ []core.Record) error { return ctx.Err() }
	s.Before(inTime)
	return Harness{
		Sink:     s,
		Settings: []byte(`{}`),
		BadSettings: []BadSettings{
			{Settings: `{"password":"hunter2"}`, Pointer: "/password", Secret: "hunter2"},
			{Settings: `{"a/b~":1}`, Pointer: "/a~1b~0"},
		},
		Received: func(testing.TB) []core.Record { return s.Delivered() },
		Refuse:   func(r core.Record) core.Record { r.Type = "refuse"; return r },
		Outage: func(testing.TB) func() {
			away := errors.New("the destination is away")
			s.Before(memory.Fail(away))
			s.SetHealth(away)
			return func() { s.SetHealth(nil); s.Before(inTime) }
		},
		Hang: func(testing.TB) func() {
			release := make(chan struct{})
			s.Before(memory.Block(release))
			return func() { close(release); s.Before(inTime) }
		},
	}
}

func TestMemorySink(t *testing.T) { Run(t, memoryHarness) }
