package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// screen is the show's output: plain lines, coloured where the terminal can.
type screen struct {
	mu     sync.Mutex
	out    io.Writer
	colour bool
	began  time.Time
}

func newScreen(out io.Writer, colour bool) *screen {
	return &screen{out: out, colour: colour, began: time.Now()}
}

const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)

func (s *screen) paint(colour, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// say prints a line without a time.
func (s *screen) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.out, text)
}

// at prints a line with the time since the beginning.
func (s *screen) at(text string) {
	s.say(s.paint(dim, fmt.Sprintf("%5.1fs  ", time.Since(s.began).Seconds())) + text)
}

func (s *screen) event(format string, args ...any) { s.at(s.paint(bold, fmt.Sprintf(format, args...))) }

func (s *screen) accident(format string, args ...any) {
	s.at(s.paint(red, fmt.Sprintf(format, args...)))
}

func (s *screen) title() {
	s.say(s.paint(bold, "connectd demo") + "\n\n" +
		"A shop commits orders and, in the same transaction, the commands it wants sent.\n" +
		"connectd carries them to a receiver as signed webhooks, through a sink in a process of its own.\n" +
		"The receiver verifies the signatures and does each command once, however often it comes.\n" +
		"Both of connectd's processes are killed once. Then the books are checked.\n")
}

// arrived shows one command.
func (s *screen) arrived(a arrival) {
	text := fmt.Sprintf("%s %-18s %-12s %s", s.paint(cyan, "arrived"), a.Type, a.Key, a.Payload)
	switch {
	case a.Again:
		text += s.paint(dim, fmt.Sprintf("  (send %d: done already, passed over)", a.Deliveries))
	case a.PossibleDuplicate:
		text += s.paint(dim, fmt.Sprintf("  (send %d, may be a duplicate)", a.Deliveries))
	}
	s.at(text)
}

func (s *screen) progress(committed, rolledBack, arrived, copies int) {
	s.at(fmt.Sprintf("committed %-5d rolled back %-4d delivered %-5d copies %-3d on the way %d", committed, rolledBack, arrived, copies,
		max(0, committed-arrived)))
}

// books prints the result.
func (s *screen) books(b books) {
	row := func(good bool, name, text string) {
		mark := s.paint(green, "ok    ")
		if !good {
			mark = s.paint(red, "WRONG ")
		}
		s.say("  " + mark + fmt.Sprintf("%-15s", name) + text)
	}
	s.say("")
	row(b.Committed > 0 && b.InTable == b.Committed, "committed", fmt.Sprintf("%d commands of %d orders", b.Committed, b.Orders))
	row(b.Invented == 0, "rolled back", fmt.Sprintf("%d commands; %s arrived", b.RolledBack, none(b.Invented)))
	row(b.Missing == 0, "delivered", fmt.Sprintf("%d of %d", b.Delivered, b.Committed))
	row(b.Unmarked == 0, "duplicates", duplicates(b))
	row(b.Reordered == 0, "order per key", fmt.Sprintf("%s out of order in %d keys", none(b.Reordered), b.Keys))
	row(b.Refused == b.Forged, "signatures", signatures(b))
	s.say("")
	if b.balanced() {
		s.say(s.paint(green, "Nothing lost, nothing invented, order kept."))
		return
	}
	s.say(s.paint(red, strings.ToUpper("the books do not balance.")))
}

func duplicates(b books) string {
	switch {
	case b.Duplicates == 0:
		return "none"
	case b.Unmarked == 0:
		return fmt.Sprintf("%d, each with the possible-duplicate mark and passed over", b.Duplicates)
	default:
		return fmt.Sprintf("%d, %d of them without the possible-duplicate mark", b.Duplicates, b.Unmarked)
	}
}

func signatures(b books) string {
	if b.Refused == b.Forged {
		return fmt.Sprintf("%d verified; %d forged and refused", b.Verified, b.Forged)
	}
	return fmt.Sprintf("%d verified; %d refused, and %d forged", b.Verified, b.Refused, b.Forged)
}

func none(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}
