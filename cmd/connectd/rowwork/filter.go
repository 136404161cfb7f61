package rowwork

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

// FilterNames are the names that ParseFilter takes.
func FilterNames() []string { return []string{"state", "key", "type", "reason", "older", "newer"} }

// States are the states that a row can be in.
func States() []string {
	return []string{string(core.Pending), string(core.Published), string(core.Dead), string(core.Held), string(core.Skipped)}
}

// ParseFilter reads a filter as people write it. An empty value is an error: it is what a script's variable is that was
// never set, and a filter that fell away would take more rows than were meant.
func ParseFilter(fields map[string]string) (core.Filter, error) {
	var f core.Filter
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := fields[name]
		switch {
		case !slices.Contains(FilterNames(), name):
			return f, fmt.Errorf("rows cannot be chosen by %q%s", core.CleanText(name), settings.DidYouMean(name, FilterNames()))
		case value == "":
			return f, fmt.Errorf("%s is empty", name)
		case !utf8.ValidString(value) || strings.ContainsRune(value, 0):
			return f, fmt.Errorf("%s is not text", name)
		}
		var err error
		switch name {
		case "state":
			switch f.State = core.State(value); {
			case value == "sending":
				err = fmt.Errorf("state \"sending\" cannot be chosen: such rows are %s, and shown as sending while a send runs", core.Pending)
			case !slices.Contains(States(), value):
				err = fmt.Errorf("state %q is not known%s", core.CleanText(value), settings.DidYouMean(value, States()))
			}
		case "key":
			f.Key = value
		case "type":
			f.Type = value
		case "reason":
			f.Reason = value
		case "older":
			f.Older, err = age(name, value)
		case "newer":
			f.Newer, err = age(name, value)
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

func age(name, text string) (time.Duration, error) {
	d, err := settings.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s %w", name, err)
	case d == 0:
		return 0, fmt.Errorf("%s must be above 0", name)
	}
	return d, nil
}
