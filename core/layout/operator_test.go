package layout_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/layout"
)

func TestExistingRows(t *testing.T) {
	for _, c := range []struct {
		answer             string
		flagged, undecided bool
		want               core.State
		problem            string
	}{
		{"pending", true, true, core.Pending, ""},
		{"published", true, true, core.Published, ""},
		{"", true, true, "", ""},
		{"", true, false, "", ""},
		{"", false, false, core.Pending, ""},
		{"", false, true, "", "table t has rows already"},
		{"sent", true, true, "", `--existing is "sent", must be pending or published`},
	} {
		got, err := layout.Existing("t", c.answer, c.flagged, c.undecided)
		if got != c.want || (err != nil) != (c.problem != "") || err != nil && !strings.HasPrefix(err.Error(), c.problem) {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	_, err := layout.Existing("t", "", false, true)
	var existing *layout.ExistingRowsError
	if !errors.As(err, &existing) || existing.Table != "t" || !strings.Contains(err.Error(), "--existing pending") {
		t.Errorf("%v", err)
	}
}

func TestAllow(t *testing.T) {
	if err := layout.Allow("a", core.Held, core.Dead, core.Held); err != nil {
		t.Error(err)
	}
	for want, from := range map[string][]core.State{"dead": {core.Dead}, "dead or held": {core.Dead, core.Held}} {
		var state *core.StateError
		if err := layout.Allow("a", core.Pending, from...); !errors.As(err, &state) || *state != (core.StateError{ID: "a", State: core.Pending, Want: want}) {
			t.Errorf("%v", err)
		}
	}
}

func TestErrorText(t *testing.T) {
	for want, f := range map[string]core.Failure{
		"gone": {Code: "gone"}, "gone: for good": {Code: "gone", Message: "for good"}, "a b: c d": {Code: "a\nb", Message: "c\x00d"},
	} {
		if got := layout.ErrorText(&f); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := layout.ErrorText(&core.Failure{Code: "c", Message: strings.Repeat("é", core.MaxErrorText)}); len(got) > core.MaxErrorText {
		t.Errorf("%d bytes", len(got))
	}
}
