package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSweepLeavesTheLivingAlone(t *testing.T) {
	base := shortDir(t)
	alive, err := newStartDir(base)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := newStartDir(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.lock.Close(); err != nil { // as the end of its daemon does
		t.Fatal(err)
	}
	old, young := filepath.Join(base, rawName+"old"), filepath.Join(base, rawName+"young")
	foreign := filepath.Join(base, "somebody-else")
	for _, dir := range []string{old, young, foreign} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * rawMaxAge)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	if n, err := sweep(base); n != 2 || err != nil {
		t.Errorf("swept %d: %v", n, err)
	}
	for path, want := range map[string]bool{alive.path: true, young: true, foreign: true, dead.path: false, old: false} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v", path, err == nil)
		}
	}
	if err := alive.remove(); err != nil {
		t.Error(err)
	}
	if err := alive.remove(); err != nil {
		t.Errorf("twice: %v", err)
	}
	if n, err := sweep(filepath.Join(base, "nowhere")); n != 0 || err != nil {
		t.Errorf("a directory that is not there: %d %v", n, err)
	}
}

func TestRuntimeDirectoryIsChecked(t *testing.T) {
	base := shortDir(t)
	long := filepath.Join(base, strings.Repeat("x", 90))
	if _, err := newStartDir(long); err == nil {
		t.Error("a path too long for sockets is accepted")
	} else {
		contains(t, err.Error(), long, "limit is 107", "choose one at least")
		if _, err := os.Stat(long); err == nil {
			t.Error("it was made all the same")
		}
	}
	if err := os.Chmod(base, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := newStartDir(base); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("a directory everybody may write: %v", err)
	}
	// The longest path that is accepted really holds a socket.
	room := maxSocketPath - len("/"+usedName) - len("4294967295") - socketName - len("/tmp/")
	fits := "/tmp/" + strings.Repeat("y", room)
	t.Cleanup(func() { _ = os.RemoveAll(fits) })
	spec := tortureSpec(t, "plain")
	spec.RuntimeDir = fits
	startReady(t, spec, defaultTiming())
}
