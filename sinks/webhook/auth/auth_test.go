package auth

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/connectd/connectd/core/secretfile"
	"github.com/connectd/connectd/sinks/webhook/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func request() *egress.Request {
	return &egress.Request{
		Method: "POST", URL: &url.URL{Scheme: "https", Host: "a.example", Path: "/"}, Header: http.Header{}, Body: []byte("{}"),
	}
}

// authorized returns the header's value after Authorize.
func authorized(t *testing.T, a Authorizer, name string) string {
	t.Helper()
	r := request()
	if err := a.Authorize(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r.Header.Get(name)
}

func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		a          Authorizer
		name, want string
	}{
		{Basic("Aladdin", secretfile.Value("open sesame")), "Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}, // RFC 7617, section 2
		{Basic("test", secretfile.Value("123£")), "Authorization", "Basic dGVzdDoxMjPCow=="},                       // RFC 7617, section 2.1
		{Basic("", secretfile.Value("")), "Authorization", "Basic Og=="},
		{Bearer(secretfile.Value("mF_9.B5f-4.1JqM")), "Authorization", "Bearer mF_9.B5f-4.1JqM"}, // RFC 6750, section 2.1
		{Header("X-Api-Key", secretfile.Value("k e y")), "X-Api-Key", "k e y"},
	} {
		if got := authorized(t, c.a, c.name); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
		r := request()
		r.Header.Set(c.name, c.want)
		if c.a.Refused(r) {
			t.Error("the same secret is said to do better")
		}
	}
}

func TestSecretsThatNoHeaderCarries(t *testing.T) {
	for _, a := range []Authorizer{
		Bearer(secretfile.Value("hunter2 ")), Bearer(secretfile.Value("hunter2\n")), Bearer(secretfile.Value("hunter2ü")), Bearer(secretfile.Value("")),
		Header("X-Api-Key", secretfile.Value("hunter2\r\nX-Other: 1")), Header("X-Api-Key", secretfile.Value("hunter2\x00")),
	} {
		r := request()
		err := a.Authorize(t.Context(), r)
		if err == nil || strings.Contains(err.Error(), "hunter2") || len(r.Header) != 0 {
			t.Errorf("%v, %v", r.Header, err)
		}
	}
}

// TestFilesAreReadAgain changes a token's file, and turns it to something that is no token.
func TestFilesAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	put := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("one\r\n")
	bearer, header := Bearer(secretfile.File(path)), Header("X-Api-Key", secretfile.File(path))
	old := request()
	if err := bearer.Authorize(t.Context(), old); err != nil || old.Header.Get("Authorization") != "Bearer one" {
		t.Fatal(old.Header, err)
	}
	if bearer.Refused(old) {
		t.Error("the same token is said to do better")
	}
	put("two\n\n")
	if !bearer.Refused(old) {
		t.Error("there is another token")
	}
	if got := authorized(t, bearer, "Authorization"); got != "Bearer two" {
		t.Error(got)
	}
	if got := authorized(t, header, "X-Api-Key"); got != "two" {
		t.Error(got)
	}
	for content, word := range map[string]string{
		"":                            "is empty",
		"\n":                          "is empty",
		"hunter2\nhunter2":            "characters",
		strings.Repeat("a", 64<<10+1): "more than",
	} {
		put(content)
		for _, a := range []Authorizer{bearer, header} {
			err := a.Authorize(t.Context(), request())
			if err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v, want %q", err, word)
			}
			if a.Refused(old) {
				t.Error("no token is said to do better")
			}
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := bearer.Authorize(t.Context(), request()); err == nil || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
	put("three")
	if got := authorized(t, bearer, "Authorization"); got != "Bearer three" {
		t.Error(got)
	}
}

// TestPrintingShowsNoSecret is about logs.
func TestPrintingShowsNoSecret(t *testing.T) {
	o := NewOAuth2(OAuth2Config{ClientID: "id", ClientSecret: "hunter2", Params: map[string]string{"a": "hunter2"}})
	o.token = &token{header: "Bearer hunter2"}
	for _, a := range []Authorizer{
		Basic("u", secretfile.Value("hunter2")), Bearer(secretfile.Value("hunter2")), Header("A", secretfile.Value("hunter2")), o,
		SigV4(SigV4Config{SecretAccessKey: "hunter2", SessionToken: "hunter2"}),
	} {
		for _, format := range []string{"%v", "%+v", "%#v"} {
			if text := fmt.Sprintf(format, a); strings.Contains(text, "hunter2") {
				t.Errorf("%T prints as %s", a, text)
			}
		}
	}
}
