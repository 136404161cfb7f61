package reread

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// text is a value that is told apart by where it is, too.
type text struct{ string }

func join(contents [][]byte) (*text, error) {
	var parts []string
	for _, c := range contents {
		if string(c) == "bad" {
			return nil, errors.New("bad")
		}
		parts = append(parts, string(c))
	}
	return &text{strings.Join(parts, "+")}, nil
}

// put writes a file, and makes it old.
func put(t *testing.T, path, content string, age time.Duration) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-age).Truncate(time.Second)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, f *Files[*text], content string) *text {
	t.Helper()
	got, err := f.Get()
	if err != nil || got.string != content {
		t.Fatalf("%v, %v; want %q", got, err, content)
	}
	return got
}

func TestChanges(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	put(t, a, "1", time.Hour)
	put(t, b, "2", time.Hour)
	f := New(10, join, a, b)
	first := want(t, f, "1+2")
	if again := want(t, f, "1+2"); again != first {
		t.Error("another value without a change")
	}
	put(t, b, "3", time.Minute) // the same size at another time
	want(t, f, "1+3")
	put(t, a, "10", time.Hour) // another size at the same time
	second := want(t, f, "10+3")
	put(t, a, "10", time.Minute) // touched
	if touched := want(t, f, "10+3"); touched != second {
		t.Error("another value though the contents are the same")
	}
}

// TestWithinOneTick changes a file to the same size at the same time, which only a look at the content tells.
func TestWithinOneTick(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	f := New(10, join, path)
	now := time.Now()
	for _, content := range []string{"1", "2", "3"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now); err != nil {
			t.Fatal(err)
		}
		if got := want(t, f, content); want(t, f, content) != got {
			t.Error("another value without a change")
		}
	}
}

// TestReplaced is how secrets are renewed in a cluster: a link is turned to another directory.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	then := time.Now().Add(-time.Hour)
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, version, "token"), version, time.Hour)
		if err := os.Chtimes(filepath.Join(dir, version, "token"), then, then); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "now")
	f := New(10, join, filepath.Join(link, "token"))
	for _, version := range []string{"1", "2", "1"} {
		if err := os.Symlink(version, link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
		want(t, f, version)
	}
}

func TestErrorsPass(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	f := New(4, join, path)
	wantError := func(word string) {
		t.Helper()
		if got, err := f.Get(); err == nil || !strings.Contains(err.Error(), word) || got != nil {
			t.Fatalf("%v, %v; want %q", got, err, word)
		}
	}
	wantError(path)
	put(t, path, "good", time.Hour)
	want(t, f, "good")
	put(t, path, "bad", time.Hour)
	wantError("bad")
	wantError("bad")
	put(t, path, "toolong", time.Hour)
	wantError("more than 4 bytes")
	put(t, path, "good", time.Hour)
	want(t, f, "good")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Get(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	wantError("no regular file") // and does not wait for a writer
}

func TestNoFiles(t *testing.T) {
	f := New(0, join)
	if first := want(t, f, ""); want(t, f, "") != first {
		t.Error("another value without a change")
	}
}

func TestConcurrentUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	put(t, path, "1", 0)
	f := New(10, join, path)
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for range 100 {
				if _, err := f.Get(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 50 {
		next := path + ".new"
		put(t, next, strings.Repeat("x", i%9+1), 0)
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
	users.Wait()
}
