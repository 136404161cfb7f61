package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/connectd/connectd/sinks/webhook/egress"
)

// tokens is a token endpoint. It gives tokens "1", "2" and so on, or what answer says.
type tokens struct {
	url string

	mu      sync.Mutex
	expires int                       // seconds; 0: the answer does not say
	answer  func(http.ResponseWriter) // instead of a token
	asked   []string                  // Authorization and body of each request
}

func newTokens(t *testing.T) *tokens {
	t.Helper()
	e := &tokens{expires: 3600}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asked = append(e.asked, r.Header.Get("Authorization")+" "+string(body))
		w.Header().Set("Content-Type", "application/json")
		if e.answer != nil {
			e.answer(w)
			return
		}
		expires := ""
		if e.expires != 0 {
			expires = fmt.Sprintf(`,"expires_in":%d`, e.expires)
		}
		fmt.Fprintf(w, `{"access_token":"%d","token_type":"bearer"%s}`, len(e.asked), expires)
	}))
	t.Cleanup(s.Close)
	e.url = s.URL + "/token?key=hunter2"
	return e
}

func (e *tokens) set(expires int, answer func(http.ResponseWriter)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expires, e.answer = expires, answer
}

func (e *tokens) requests() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.asked)
}

// says answers with a status and a body.
func says(status int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// clock is a time that passes when a test says so.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (e *tokens) client() (*OAuth2, *clock) {
	o := NewOAuth2(OAuth2Config{TokenURL: e.url, ClientID: "id", ClientSecret: "hunter2"})
	c := &clock{now: time.Now()}
	o.now = c.read
	return o, c
}

func wantToken(t *testing.T, o *OAuth2, want string) *egress.Request {
	t.Helper()
	r := request()
	if err := o.Authorize(t.Context(), r); err != nil || r.Header.Get("Authorization") != "Bearer "+want {
		t.Fatalf("%q, %v; want token %s", r.Header.Get("Authorization"), err, want)
	}
	return r
}

func TestTokenRequest(t *testing.T) {
	e := newTokens(t)
	config := OAuth2Config{
		TokenURL: e.url, ClientID: "an id", ClientSecret: "a:secret&", Scopes: []string{"a", "b"}, Params: map[string]string{"audience": "x y"},
	}
	wantToken(t, NewOAuth2(config), "1")
	config.SecretInBody = true
	wantToken(t, NewOAuth2(config), "2")
	want := []string{
		"Basic YW4raWQ6YSUzQXNlY3JldCUyNg== audience=x+y&grant_type=client_credentials&scope=a+b",
		" audience=x+y&client_id=an+id&client_secret=a%3Asecret%26&grant_type=client_credentials&scope=a+b",
	}
	if got := e.requests(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestOneTokenForMany has 64 callers at once, before there is a token, and when the only one has been refused.
func TestOneTokenForMany(t *testing.T) {
	e := newTokens(t)
	o, _ := e.client()
	many := func(want string) []*egress.Request {
		var callers sync.WaitGroup
		requests := make([]*egress.Request, 64)
		for i := range requests {
			callers.Go(func() {
				requests[i] = request()
				if err := o.Authorize(t.Context(), requests[i]); err != nil || requests[i].Header.Get("Authorization") != "Bearer "+want {
					t.Errorf("%v, %v; want %s", requests[i].Header, err, want)
				}
			})
		}
		callers.Wait()
		return requests
	}
	old := many("1")
	var callers sync.WaitGroup
	for _, r := range old {
		callers.Go(func() {
			if !o.Refused(r) {
				t.Error("another token is said not to help")
			}
		})
	}
	callers.Wait()
	many("2")
	if !o.Refused(old[0]) {
		t.Error("a refusal of the old token is said not to help")
	}
	many("2")
	if n := len(e.requests()); n != 2 {
		t.Errorf("%d tokens were asked for", n)
	}
}

// TestRefusedAgain does not help: the fresh token stays for a while, and the endpoint is left alone.
func TestRefusedAgain(t *testing.T) {
	e := newTokens(t)
	o, clock := e.client()
	if r := wantToken(t, o, "1"); !o.Refused(r) {
		t.Error("a new token may help")
	}
	r := wantToken(t, o, "2")
	for range 3 {
		if o.Refused(r) {
			t.Error("a fresh token is refused, and a new one is said to help")
		}
		wantToken(t, o, "2")
	}
	clock.pass(refusalPause)
	if !o.Refused(r) {
		t.Error("after a while a new token may help")
	}
	wantToken(t, o, "3")
}

// TestRenewal is early, and by one caller: the others go on with the old token.
func TestRenewal(t *testing.T) {
	e := newTokens(t)
	o, clock := e.client()
	wantToken(t, o, "1")
	clock.pass(58 * time.Minute)
	wantToken(t, o, "1")
	clock.pass(90 * time.Second) // half a minute is left
	inside, leave := make(chan struct{}), make(chan struct{})
	e.set(3600, func(w http.ResponseWriter) {
		close(inside)
		<-leave
		says(200, `{"access_token":"new","token_type":"Bearer","expires_in":3600}`)(w)
	})
	var renewer sync.WaitGroup
	renewer.Go(func() { wantToken(t, o, "new") })
	<-inside
	for range 10 {
		wantToken(t, o, "1")
	}
	close(leave)
	renewer.Wait()
	wantToken(t, o, "new")
	if n := len(e.requests()); n != 2 {
		t.Errorf("%d tokens were asked for", n)
	}
}

// TestRenewalFails at first: the old token is used as long as it is good, and the endpoint is asked once a second at most.
func TestRenewalFails(t *testing.T) {
	e := newTokens(t)
	o, clock := e.client()
	wantToken(t, o, "1")
	e.set(0, says(500, "hunter2"))
	clock.pass(59*time.Minute + 30*time.Second)
	for range 3 {
		wantToken(t, o, "1")
	}
	if n := len(e.requests()); n != 2 {
		t.Errorf("the endpoint was asked %d times", n)
	}
	clock.pass(25 * time.Second) // 5 s before its end the token counts as ended
	for range 3 {
		err := o.Authorize(t.Context(), request())
		if err == nil || err.Error() != "token endpoint answered 500" {
			t.Errorf("%v", err)
		}
	}
	if n := len(e.requests()); n != 3 {
		t.Errorf("the endpoint was asked %d times", n)
	}
	e.set(3600, nil)
	clock.pass(tokenPause + 1)
	wantToken(t, o, "4")
}

func TestTokenWithoutEnd(t *testing.T) {
	e := newTokens(t)
	e.set(0, nil)
	o, clock := e.client()
	wantToken(t, o, "1")
	clock.pass(1000 * time.Hour)
	wantToken(t, o, "1")
}

// TestShortTokens live for a second: they are used for most of it.
func TestShortTokens(t *testing.T) {
	e := newTokens(t)
	e.set(1, nil)
	o, clock := e.client()
	wantToken(t, o, "1")
	wantToken(t, o, "1")
	clock.pass(time.Second)
	wantToken(t, o, "2")
}

func TestTokenEndpointFails(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   string
	}{
		"refused":            {says(401, `{"error":"invalid_client","error_description":"hunter2"}`), "token endpoint answered 401 invalid_client"},
		"refused with 200":   {says(200, `{"error":"invalid_scope"}`), "token endpoint answered 200 invalid_scope"},
		"a strange code":     {says(400, `{"error":"hunter2 is wrong"}`), "token endpoint answered 400"},
		"no JSON":            {says(503, "<h1>hunter2</h1>"), "token endpoint answered 503"},
		"no JSON with 200":   {says(200, "<h1>hunter2</h1>"), "token endpoint answered without a token that can be read"},
		"no token":           {says(200, `{"token_type":"Bearer"}`), "token endpoint answered without a token that can be read"},
		"another type":       {says(200, `{"access_token":"hunter2","token_type":"mac"}`), "the token endpoint gave a token of another type than Bearer"},
		"ended":              {says(200, `{"access_token":"hunter2","token_type":"Bearer","expires_in":-5}`), "the token endpoint gave a token that has ended already"},
		"no header's token":  {says(200, `{"access_token":"hunter2\nX: y","token_type":"Bearer"}`), "token endpoint: the token is not made of visible ASCII characters"},
		"too long an answer": {says(200, strings.Repeat(" ", maxToken+1)), "token endpoint: the answer did not end in time, or is too long"},
		"redirect": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "/elsewhere?hunter2")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "token endpoint answered 307"},
	} {
		e := newTokens(t)
		e.set(0, c.answer)
		o, _ := e.client()
		for range 2 { // the second time from memory
			if err := o.Authorize(t.Context(), request()); err == nil || err.Error() != c.want {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		}
		if n := len(e.requests()); n != 1 {
			t.Errorf("%s: the endpoint was asked %d times", name, n)
		}
	}
}

func TestNoTokenEndpoint(t *testing.T) {
	o := NewOAuth2(OAuth2Config{TokenURL: "http://127.0.0.1:1/?key=hunter2", ClientID: "id", ClientSecret: "hunter2"})
	err := o.Authorize(t.Context(), request())
	var e *egress.Error
	if !errors.As(err, &e) || e.Phase != egress.PhaseConnect || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"ftp://a.example", "http://u:hunter2@a.example/", "hunter2", "http://[hunter2/"} {
		err := NewOAuth2(OAuth2Config{TokenURL: bad}).Authorize(t.Context(), request())
		if err == nil || !strings.Contains(err.Error(), "URL") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestCallersGiveUp has an endpoint that does not answer: each caller waits for as long as it has, the one that asks and
// the one that waits for it, and neither spoils it for those that come after.
func TestCallersGiveUp(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	var hang atomic.Bool
	hang.Store(true)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if hang.Load() {
			inside <- struct{}{}
			<-leave
			return
		}
		w.Header().Set("Content-Type", "application/json")
		says(200, `{"access_token":"late","token_type":"Bearer"}`)(w)
	}))
	t.Cleanup(s.Close)
	o := NewOAuth2(OAuth2Config{TokenURL: s.URL})
	first, cancelFirst := context.WithCancel(t.Context())
	second, cancelSecond := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	callers.Go(func() {
		if err := o.Authorize(first, request()); !errors.Is(err, context.Canceled) {
			t.Errorf("first: %v", err)
		}
	})
	<-inside
	cancelSecond()
	if err := o.Authorize(second, request()); !errors.Is(err, context.Canceled) {
		t.Errorf("second: %v", err)
	}
	cancelFirst()
	callers.Wait()
	hang.Store(false)
	close(leave)
	wantToken(t, o, "late")
}
