// Package reread keeps what was read from files, and reads them again when they have changed: tokens and certificates are
// renewed beside a sink that runs for months.
package reread

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// settled is the age at which a file's time tells its next change apart from the last one. File systems count time in
// steps, some of whole seconds.
const settled = 2 * time.Second

// Files is one value made of the contents of some files. It may be used concurrently.
type Files[T any] struct {
	limit int64
	parse func(contents [][]byte) (T, error)
	paths []string

	mu       sync.Mutex
	seen     []os.FileInfo // nil: read them again
	contents [][]byte      // what value was made of; nil: there is no value
	value    T
}

// New returns the value that parse makes of the files' contents, in the order of their paths. Nothing is read before the
// first Get. A file of more than limit bytes is an error, and so is one that is no regular file.
func New[T any](limit int64, parse func(contents [][]byte) (T, error), paths ...string) *Files[T] {
	return &Files[T]{limit: limit, parse: parse, paths: paths}
}

// Get returns the value as the files are now: the same one as long as none of them has changed. Errors name the file and
// show nothing of it, unless parse does.
func (f *Files[T]) Get() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var zero T
	infos := make([]os.FileInfo, len(f.paths))
	for i, path := range f.paths {
		info, err := os.Stat(path)
		if err != nil {
			return zero, err
		}
		if !info.Mode().IsRegular() {
			return zero, fmt.Errorf("%s is no regular file", path)
		}
		infos[i] = info
	}
	if f.seen != nil && slices.EqualFunc(infos, f.seen, same) {
		return f.value, nil
	}
	f.seen = nil
	if err := f.read(); err != nil {
		f.contents = nil
		return zero, err
	}
	if !slices.ContainsFunc(infos, recent) {
		f.seen = infos
	}
	return f.value, nil
}

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func recent(info os.FileInfo) bool { return time.Since(info.ModTime()) < settled }

// read makes the value, unless the contents are what it was made of.
func (f *Files[T]) read() error {
	contents := make([][]byte, len(f.paths))
	for i, path := range f.paths {
		content, err := readLimited(path, f.limit)
		if err != nil {
			return err
		}
		contents[i] = content
	}
	if f.contents != nil && slices.EqualFunc(contents, f.contents, bytes.Equal) {
		return nil
	}
	value, err := f.parse(contents)
	if err != nil {
		return err
	}
	f.contents, f.value = contents, value
	return nil
}

func readLimited(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return content, nil
}
