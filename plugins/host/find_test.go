package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	dir, outside := shortDir(t), shortDir(t)
	write := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "connectd-sink-good"), 0o755)
	write(filepath.Join(dir, "connectd-sink-plain"), 0o644)
	write(filepath.Join(dir, "connectd-sink-group"), 0o775)
	write(filepath.Join(dir, "connectd-sink-world"), 0o757)
	write(filepath.Join(outside, "evil"), 0o755)
	link(filepath.Join(outside, "evil"), "connectd-sink-out")
	link("connectd-sink-good", "connectd-sink-in")
	if err := os.Mkdir(filepath.Join(dir, "connectd-sink-dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"good": "", "in": "",
		"none":                  `there is no sink "none": no file connectd-sink-none in ` + dir,
		"plain":                 "is not executable",
		"group":                 "may be written by its group",
		"world":                 "may be written by its group",
		"out":                   "is a link out of plugin_dir, to " + outside,
		"dir":                   "is not a regular file",
		"../x":                  "is no name for a sink",
		"Upper":                 "is no name for a sink",
		"":                      "is no name for a sink",
		strings.Repeat("a", 65): "is no name for a sink",
	} {
		path, err := Find(dir, name)
		if want == "" {
			if err != nil || path != filepath.Join(dir, "connectd-sink-good") {
				t.Errorf("%q: %q %v", name, path, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%q: no error", name)
			continue
		}
		contains(t, err.Error(), want)
	}
	if _, err := Find(filepath.Join(dir, "nowhere"), "good"); err == nil || !strings.Contains(err.Error(), "plugin_dir") {
		t.Errorf("missing directory: %v", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(dir, "good"); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
		t.Errorf("open directory: %v", err)
	}
}

// A sticky directory lets everybody put files into it, and nobody change another's.
func TestFindRefusesProgramsOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const stranger, installer = 65534, 65533
	for what, c := range map[string]struct {
		mode            os.FileMode
		dirUID, fileUID int
		fine            bool
	}{
		"all of root":                 {0o755, 0, 0, true},
		"all of who installed it":     {0o755, installer, installer, true},
		"a stranger's file":           {0o755, 0, stranger, false},
		"root's in a sticky one":      {0o777 | os.ModeSticky, 0, 0, true},
		"a stranger's in sticky one":  {0o777 | os.ModeSticky, 0, stranger, false},
		"a stranger's own sticky one": {0o777 | os.ModeSticky, stranger, stranger, false},
	} {
		t.Run(what, func(t *testing.T) {
			dir := shortDir(t)
			path := filepath.Join(dir, "connectd-sink-my_sink")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			for path, uid := range map[string]int{path: c.fileUID, dir: c.dirUID} {
				if err := os.Chown(path, uid, -1); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, c.mode); err != nil {
				t.Fatal(err)
			}
			switch _, err := Find(dir, "my_sink"); {
			case c.fine && err != nil:
				t.Error(err)
			case !c.fine && (err == nil || !strings.Contains(err.Error(), "belongs to another user")):
				t.Errorf("not refused: %v", err)
			}
		})
	}
}
