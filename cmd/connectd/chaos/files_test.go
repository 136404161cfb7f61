//go:build linux

package chaos

import (
	"os"
	"slices"
	"testing"
	"time"
)

// TestFileReceiver: lines that are taken back are not received, a torn one neither, and each has the time at which it was
// first there.
func TestFileReceiver(t *testing.T) {
	f := startFile(t, t.TempDir(), time.Second)
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(f.path, []byte(text), 0o600))
	}
	const (
		one   = `{"id":"a-1","key":"a","payload":{"key":"a","n":1},"deliveries":1,"possible_duplicate":false,"epoch":1}` + "\n"
		two   = `{"id":"a-2","key":"a","payload":{"key":"a","n":2},"deliveries":2,"possible_duplicate":true,"epoch":3}` + "\n"
		three = `{"id":"b-1","key":null,"payload":{"key":"","n":1},"deliveries":1,"possible_duplicate":false,"epoch":3}` + "\n"
	)
	before := time.Now()
	write(one + three)
	f.look()
	write(one)
	f.look()
	write(one + two + three[:40])
	got, err := f.received()
	must(t, err)
	for i := range got {
		if got[i].At.Before(before) || got[i].At.After(time.Now()) {
			t.Errorf("%s came at %v", got[i].ID, got[i].At)
		}
		got[i].At = time.Time{}
	}
	want := []reception{
		{ID: "a-1", Key: "a", N: 1, Delivery: 1, Epoch: 1},
		{ID: "a-2", Key: "a", N: 2, Delivery: 2, Marked: true, Epoch: 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("received %+v, want %+v", got, want)
	}
	write(one + "half a li\n")
	if _, err := f.received(); err == nil {
		t.Error("a broken line in the middle is no error")
	}
}
