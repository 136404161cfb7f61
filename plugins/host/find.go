package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// Prefix begins the file name of every sink's program.
const Prefix = "connectd-sink-"

var nameRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// Find returns the path of the program for the sink of that name in the plugin directory: connectd-sink-NAME. It
// refuses what somebody else could have put there or could change: a link out of the directory, and a file or
// directory that its group or everybody may write, or a file of a user who is neither root, nor the daemon's own, nor the
// directory's owner. In a sticky directory, where everybody may put files, the directory's owner is no help.
func Find(dir, name string) (string, error) {
	if !nameRule.MatchString(name) {
		return "", fmt.Errorf("%q is no name for a sink: 1 to 64 of a-z, 0-9, - and _", name)
	}
	root, err := filepath.Abs(dir)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return "", fmt.Errorf("plugin_dir: %w", err)
	}
	info, err := os.Stat(root)
	switch {
	case err != nil:
		return "", fmt.Errorf("plugin_dir: %w", err)
	case !info.IsDir():
		return "", fmt.Errorf("plugin_dir %s is not a directory", dir)
	case info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0:
		return "", fmt.Errorf("plugin_dir %s may be written by its group or by everybody (mode %v): chmod go-w it", dir, info.Mode())
	}
	path := filepath.Join(root, Prefix+name)
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no sink %q: no file %s%s in %s", name, Prefix, name, dir)
	}
	if err != nil {
		return "", fmt.Errorf("sink %q: %w", name, err)
	}
	if rel, err := filepath.Rel(root, target); err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("sink %q: %s is a link out of plugin_dir, to %s", name, path, target)
	}
	if err := checkProgram(target); err != nil {
		return "", fmt.Errorf("sink %q: %w", name, err)
	}
	program, err := os.Stat(target)
	switch {
	case err != nil:
		return "", fmt.Errorf("sink %q: %w", name, err)
	case program.Mode().Perm()&0o022 != 0:
		return "", fmt.Errorf("sink %q: %s may be written by its group or by everybody (mode %v): chmod go-w it", name, target, program.Mode())
	case !trusted(program, info):
		return "", fmt.Errorf("sink %q: %s belongs to another user (uid %d): chown it to root or to the daemon's user", name, target, owner(program))
	}
	return target, nil
}

// trusted says whether who owns the program may decide what the daemon runs.
func trusted(program, dir fs.FileInfo) bool {
	uid := owner(program)
	return uid == 0 || uid == os.Geteuid() || uid == owner(dir) && dir.Mode().Perm()&0o022 == 0
}

func owner(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// checkProgram says why the file cannot be run.
func checkProgram(path string) error {
	info, err := os.Stat(path)
	switch {
	case !filepath.IsAbs(path): // the process's working directory is another
		return fmt.Errorf("the path of the program, %q, is not absolute", path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %s", path)
	case err != nil:
		return fmt.Errorf("looking at the program: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s is not executable (mode %v): chmod +x it", path, info.Mode())
	}
	return nil
}

// identity changes when the file at path is replaced, changed, made executable or appears.
func identity(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(inode(info), info.Size(), info.Mode(), info.ModTime().UnixNano())
}
