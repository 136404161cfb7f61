package layout

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/connectd/connectd/core"
)

func TestElsewhereAsksNoMoreThanItMust(t *testing.T) {
	others := []Neighbour{{"a", "id"}, {"b", "id"}, {"c", "id"}}
	for name, c := range map[string]struct {
		find  func(table string, found Places) error
		asked []string
		x, y  core.RowPlace
		fails bool
	}{
		"found": {func(_ string, found Places) error {
			found.Found("x", core.RowThere, 0)
			found.Found("y", core.RowCleaned, 0)
			return nil
		}, []string{"a"}, core.RowElsewhere, core.RowElsewhere, false},
		"unread":  {func(string, Places) error { return fmt.Errorf("look: %w", Unread{"a", "denied"}) }, []string{"a"}, core.RowElsewhere, core.RowElsewhere, false},
		"neither": {func(string, Places) error { return nil }, []string{"a", "b", "c"}, core.RowUnknown, core.RowUnknown, false},
		"one each": {func(table string, found Places) error {
			found.Found(map[string]string{"a": "x", "b": "y"}[table], core.RowThere, 0)
			return nil
		}, []string{"a", "b"}, core.RowElsewhere, core.RowElsewhere, false},
		"a failure": {func(string, Places) error { return errors.New("no connection") }, []string{"a"}, core.RowUnknown, core.RowUnknown, true},
	} {
		var asked []string
		p := NewPlaces([]string{"x", "y", "mine"})
		p.Found("mine", core.RowThere, 0)
		err := p.Elsewhere(others, func(n Neighbour, found Places, commands []string) error {
			if asked = append(asked, n.Table); slices.Contains(commands, "mine") {
				t.Errorf("%s: what was found is asked for", name)
			}
			return c.find(n.Table, found)
		})
		if (err != nil) != c.fails || !slices.Equal(asked, c.asked) || p["x"].Row != c.x || p["y"].Row != c.y || p["mine"].Row != core.RowThere {
			t.Errorf("%s: asked %v, %v, %v", name, asked, p, err)
		}
	}
}

func TestManyUnreadTablesAreNotAllNamed(t *testing.T) {
	var unread []Unread
	for i := range 7 {
		unread = append(unread, Unread{fmt.Sprint("t", i), "denied"})
	}
	if got := listed(unread); got != "t0 (denied), t1 (denied), t2 (denied), t3 (denied), t4 (denied), and 2 more" {
		t.Error(got)
	}
	if got := listed(unread[:1]); got != "t0 (denied)" {
		t.Error(got)
	}
}
