package settings_test

import (
	"testing"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

func TestProblems(t *testing.T) {
	var p settings.Problems
	p.WrongIf(false, "/a", "is wrong")
	p.Warn("/b", "is 100% dubious")
	if p.Refused() {
		t.Error("refused for a warning")
	}
	p.WrongIf(true, "/c", "must be at most %d", 5)
	p.Add([]core.Diagnostic{{Pointer: "/d", Message: "more"}})
	if !p.Refused() {
		t.Error("not refused")
	}
	want := []core.Diagnostic{{Pointer: "/b", Message: "is 100% dubious", Warning: true}, {Pointer: "/c", Message: "must be at most 5"}, {Pointer: "/d", Message: "more"}}
	if len(p) != len(want) {
		t.Fatalf("%+v", p)
	}
	for i := range want {
		if p[i] != want[i] {
			t.Errorf("%+v, want %+v", p[i], want[i])
		}
	}
}

func TestPaths(t *testing.T) {
	for _, c := range []struct{ dir, path, want, message string }{
		{"/base", "", "", ""},
		{"", "", "", ""},
		{"/base", "a/b.pem", "/base/a/b.pem", ""},
		{"/base", "../a", "/a", ""},
		{"/base", "/a", "/a", ""},
		{"", "/a", "/a", ""},
		{"", "a", "a", "must be absolute, beginning with /"},
		{"/base", "a\x00", "/base/a\x00", "must not contain a NUL character"},
		{"", "a\x00", "a\x00", "must not contain a NUL character"},
	} {
		path := c.path
		settings.Absolute(c.dir, &path)
		var p settings.Problems
		p.Path("/file", path)
		message := ""
		if len(p) > 0 {
			message = p[0].Message
		}
		if path != c.want || message != c.message || len(p) > 1 {
			t.Errorf("%q in %q is %q, %+v; want %q, %q", c.path, c.dir, path, p, c.want, c.message)
		}
	}
}

func TestName(t *testing.T) {
	for pointer, want := range map[string]string{
		"": "", "/password": "password", "/tls/ca_file": "tls.ca_file", "/headers/a~1b~0c": "headers.a/b~c", "/a/~01": "a.~1",
	} {
		if got := settings.Name(pointer); got != want {
			t.Errorf("%q is %q, want %q", pointer, got, want)
		}
	}
}
