package layout_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/connectd/connectd/core/layout"
)

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var told []string
		failed := errors.New("failed")
		run := func(d time.Duration) error {
			return layout.Watch(t.Context(), func(text string) { told = append(told, text) },
				func(context.Context) string { return time.Since(begun).String() },
				func() error { time.Sleep(d); return failed })
		}
		if err := run(time.Second); !errors.Is(err, failed) || told != nil {
			t.Errorf("told %v, %v", told, err)
		}
		begun = time.Now()
		if err := run(40 * time.Second); !errors.Is(err, failed) || !slices.Equal(told, []string{"2s", "32s"}) {
			t.Errorf("told %v, %v", told, err)
		}
		if err := layout.Watch(t.Context(), nil, nil, func() error { time.Sleep(time.Minute); return nil }); err != nil {
			t.Error(err)
		}
	})
}
