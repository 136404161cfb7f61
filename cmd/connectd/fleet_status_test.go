package main

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// TestStatusShowsTheFleet: who is there, with what version, with how many partitions, seen when; who drains, who is silent,
// who took over. What is in order fits a terminal of 80 columns.
func TestStatusShowsTheFleet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "postgres", ", batch: {max_records: 1}, in_flight: 32")
	survivor := f.start()
	daemons := []*daemonProcess{survivor, f.start(), f.start()}
	f.evenWithin(patience, 3, "the start")
	shows := func(what string, patterns ...string) (text string) {
		t.Helper()
		survivor.eventually(what, func() (bool, string) {
			text = f.command("status").stdout
			for _, p := range patterns {
				if !regexp.MustCompile("(?m)" + p).MatchString(text) {
					return false, text
				}
			}
			return true, ""
		})
		t.Logf("%s:\n%s", what, text)
		return text
	}
	worker := func(d *daemonProcess) string { return fmt.Sprintf(`^orders +\S+:%d +`, d.cmd.Process.Pid) }
	text := shows("three work", `^orders +running .* 16/16 +3$`,
		worker(daemons[0])+`dev +[46] +\d\S* ago +pid \d+ \S+`, worker(daemons[1])+`dev +[46] `, worker(daemons[2])+`dev +[46] `)
	for l := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(l, " \n")); n > 80 {
			t.Errorf("a line of %d characters: %s", n, l)
		}
	}
	f.slow.Store(int64(4 * time.Second))
	for n := range 60 { // in each partition, so that each daemon has to wait for some
		if _, err := f.server.db.ExecContext(t.Context(), f.server.insert, fmt.Sprintf("row-%d", n), fmt.Sprintf("key-%d", n), "{}"); err != nil {
			t.Fatal(err)
		}
	}
	f.arriving(20)
	daemons[1].signal(syscall.SIGTERM)
	shows("one drains", worker(daemons[1])+`.* draining$`)
	daemons[2].signal(syscall.SIGKILL)
	f.slow.Store(0)
	daemons[1].wait()
	text = shows("one is left, one is missed", `^orders +running .* 16/16 +1, 1 silent$`, worker(survivor)+`dev +16 .* took over [1-9]`, worker(daemons[2])+`.* silent$`)
	if strings.Contains(text, fmt.Sprintf(":%d ", daemons[1].cmd.Process.Pid)) {
		t.Error("the one that ended in good order is still there")
	}
}
