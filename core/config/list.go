package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// list returns the files that paths stand for, each once.
func (l *loader) list(paths []string) []string {
	var files []string
	seen := map[string]bool{}
	add := func(file string) {
		same := file
		if resolved, err := filepath.EvalSymlinks(file); err == nil {
			same, _ = filepath.Abs(resolved)
		}
		if !seen[same] {
			seen[same] = true
			files = append(files, file)
		}
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			l.missing(path, reason(err))
		case !info.IsDir():
			add(path)
		default:
			found, err := yamlFiles(path)
			if err != nil {
				l.missing(path, reason(err))
			} else if len(found) == 0 {
				l.missing(path, "the directory has no *.yaml or *.yml file")
			}
			for _, file := range found {
				add(file)
			}
		}
	}
	if len(paths) == 0 {
		l.missing("configuration", "no file or directory is given")
	}
	return files
}

func (l *loader) missing(path, why string) {
	l.problems = append(l.problems, &Problem{Pos: Pos{File: path}, Message: why, daemon: true})
	l.files = append(l.files, path)
}

// yamlFiles lists a directory's YAML files by name. It leaves out hidden ones, which editors and Kubernetes put there,
// and does not look into directories below.
func yamlFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || ext != ".yaml" && ext != ".yml" {
			continue
		}
		files = append(files, filepath.Join(dir, e.Name()))
	}
	return files, nil
}

// reason is the error without the path, which the problem's place names already.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
