package file

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSettings(t *testing.T) {
	for settings, want := range map[string]string{
		`{"path":"/x/y"}`:                        "",
		`{"path":"-"}`:                           "",
		`{"path":"y","sync":false,"mode":"600"}`: "",
		`{}`:                                     "/path",
		`{"path":""}`:                            "/path",
		`{"path":"/x/"}`:                         "/path directory",
		`{"path":"/x\u0000"}`:                    "/path NUL",
		`{"path":7}`:                             "/path",
		`{"path":"y","mode":"0999"}`:             "/mode octal",
		`{"path":"y","mode":"04755"}`:            "/mode octal",
		`{"path":"y","mode":"0440"}`:             "/mode owner",
		`{"path":"y","sync":"perhaps"}`:          "/sync",
		`{"path":"y","pth":"z"}`:                 "/pth path",
		`[]`:                                     "",
	} {
		diagnostics, err := New(slog.New(slog.DiscardHandler), "/base").Configure(t.Context(), []byte(settings))
		if err != nil {
			t.Errorf("%s: %v", settings, err)
		}
		pointer, word, _ := strings.Cut(want, " ")
		if want == "" && settings != "[]" {
			if len(diagnostics) > 0 {
				t.Errorf("%s: %+v", settings, diagnostics)
			}
			continue
		}
		if len(diagnostics) != 1 || diagnostics[0].Pointer != pointer || !strings.Contains(diagnostics[0].Message, word) {
			t.Errorf("%s: %+v, want one about %s with %q", settings, diagnostics, pointer, word)
		}
	}
}

func TestRelativePath(t *testing.T) {
	for dir, want := range map[string]string{"/base": "/base/a/b", "": ""} {
		s := New(slog.New(slog.DiscardHandler), dir)
		d, err := s.Configure(t.Context(), []byte(`{"path":"./a/b"}`))
		if err != nil {
			t.Fatal(err)
		}
		if want == "" && (len(d) != 1 || d[0].Pointer != "/path") {
			t.Errorf("without a directory: %+v", d)
		}
		if want != "" && (len(d) > 0 || s.config.Path != want) {
			t.Errorf("in %s: %+v, %+v", dir, s.config, d)
		}
	}
}

func TestSchemaIsJSON(t *testing.T) {
	d, err := New(slog.New(slog.DiscardHandler), "/base").Describe(t.Context())
	if err != nil || d.Name != "file" || d.Version == "" || !json.Valid(d.Schema) {
		t.Errorf("Describe = %+v, %v", d, err)
	}
	for _, word := range []string{`"path"`, `"sync"`, `"mode"`, `"0640"`} {
		if !strings.Contains(string(d.Schema), word) {
			t.Errorf("no %s in the schema %s", word, d.Schema)
		}
	}
}

func TestModeOfANewFile(t *testing.T) {
	for mode, want := range map[string]os.FileMode{"": 0o640, `,"mode":"0666"`: 0o666} {
		path := filepath.Join(t.TempDir(), "out")
		s := New(slog.New(slog.DiscardHandler), "/base")
		if d, err := s.Configure(t.Context(), []byte(`{"path":"`+path+`"`+mode+`}`)); err != nil || len(d) > 0 {
			t.Fatal(d, err)
		}
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode %v, %v, want %v", info.Mode(), err, want)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
