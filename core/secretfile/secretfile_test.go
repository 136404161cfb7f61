package secretfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/connectd/connectd/core/secretfile"
	"github.com/connectd/connectd/core/settings"
)

type login struct {
	User string `json:"user"`
	secretfile.Password
}

func decoded(t *testing.T, text string) login {
	t.Helper()
	var l login
	if diagnostics := settings.Decode([]byte(text), &l); len(diagnostics) > 0 {
		t.Fatalf("%s: %v", text, diagnostics)
	}
	return l
}

func want(t *testing.T, secret secretfile.Secret, text string) {
	t.Helper()
	if got, err := secret(); err != nil || got != text {
		t.Errorf("%q, %v, want %q", got, err, text)
	}
}

func TestPassword(t *testing.T) {
	l := decoded(t, `{"user":"ada","password":"hunter2"}`)
	if !l.Set() || len(l.Check("")) > 0 {
		t.Errorf("%v %v", l.Set(), l.Check(""))
	}
	want(t, l.Password.Secret(), "hunter2")
	if text := fmt.Sprintf("%v %+v %#v", l, l, l.Password.Secret()); strings.Contains(text, "hunter2") {
		t.Error("printed")
	}

	none := decoded(t, `{"user":"ada"}`)
	if none.Set() || len(none.Check("")) > 0 {
		t.Errorf("%v %v", none.Set(), none.Check(""))
	}
	want(t, none.Password.Secret(), "")

	for text, message := range map[string]string{
		`{"password":"hunter2","password_file":"/p"}`: "is one too many beside sasl.password; leave out one of them",
		`{"password_file":"p"}`:                       "must be absolute, beginning with /",
		`{"password_file":"/p\u0000"}`:                "must not contain a NUL character",
	} {
		l := decoded(t, text)
		l.Resolve("")
		if d := l.Check("/sasl"); len(d) != 1 || d[0].Pointer != "/sasl/password_file" || d[0].Message != message || d[0].Warning {
			t.Errorf("%s: %+v", text, d)
		}
	}
}

// TestPasswordOfAFile is read again when the file has changed.
func TestPasswordOfAFile(t *testing.T) {
	dir := t.TempDir()
	l := decoded(t, `{"password_file":"password"}`)
	l.Resolve(dir)
	if d := l.Check("/sasl"); len(d) > 0 || !l.Set() {
		t.Fatalf("%v %v", l.Set(), d)
	}
	path, secret := filepath.Join(dir, "password"), l.Password.Secret()
	if _, err := secret(); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(" hunter 2 \r\n")
	want(t, secret, " hunter 2 ")
	put("other\n\n")
	want(t, secret, "other")
	for text, words := range map[string]string{"": "is empty", "\n": "is empty", strings.Repeat("hunter2", 10000): "more than 65536 bytes"} {
		put(text)
		if _, err := secret(); err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %q", err, words)
		}
	}
}
