package file

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
)

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		filepath.Join(dir, "missing", "out"): "the directory " + filepath.Join(dir, "missing") + " must exist",
		dir:                                  "is a directory",
	} {
		if err := configured(t, path).Open(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%s): %v, want %q", path, err, want)
		}
	}
	late := filepath.Join(dir, "late")
	s := configured(t, filepath.Join(late, "out"))
	if err := s.Open(t.Context()); err == nil {
		t.Fatal("opened without its directory")
	}
	if err := os.Mkdir(late, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Errorf("Open after the directory was made: %v", err)
	}
}

func TestOneSinkAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	first, second := open(t, path), configured(t, path)
	err := second.Open(t.Context())
	if !errors.Is(err, core.ErrInUse) || !strings.Contains(err.Error(), "another sink is writing") {
		t.Fatalf("second Open: %v", err)
	}
	if _, missing := os.Stat("/proc/locks"); missing == nil && !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("the error does not say who: %v", err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := second.Open(t.Context()); err != nil {
		t.Errorf("Open after the first is closed: %v", err)
	}
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	s := open(t, path)
	wantDelivered(t, send(t, s, "1"))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	wantDelivered(t, send(t, s, "2"))
	wantLines(t, path+".1", "1")
	wantLines(t, path, "2")

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantDelivered(t, send(t, s, "3"))
	wantLines(t, path, "3")

	if err := os.Truncate(path, 0); err != nil { // logrotate's copytruncate
		t.Fatal(err)
	}
	wantDelivered(t, send(t, s, "4"))
	wantLines(t, path, "4")

	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("foreign"); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	wantFailed(t, send(t, s, "5", "6"), "open_failed", false)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	wantDelivered(t, send(t, s, "5", "6"))
	wantLines(t, path, "5", "6")
}

func TestDirectoryGoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "out")
	s := open(t, path)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	wantFailed(t, send(t, s, "1", "2"), "open_failed", false)
	if err := s.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "must exist") {
		t.Errorf("Health: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Health(t.Context()); err != nil {
		t.Errorf("Health after the directory is back: %v", err)
	}
	wantDelivered(t, send(t, s, "1", "2"))
	wantLines(t, path, "1", "2")
}

func TestRemovedWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	target, err := openTarget(config{Path: path, Mode: 0o600, Sync: true}, nil, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	defer target.close()
	if _, err := target.write(t.Context(), []byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if stayed, err := target.sync(); err == nil || stayed {
		t.Errorf("sync of a removed file: %v, %v", stayed, err)
	}
}

func TestLogStream(t *testing.T) {
	s := configured(t, "-")
	var log bytes.Buffer
	s.stream = &log
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantDelivered(t, send(t, s, "1", "2"))
	if ids, err := parseIDs(log.Bytes()); err != nil || len(ids) != 2 {
		t.Errorf("the log has %q, %v", log.String(), err)
	}
}
