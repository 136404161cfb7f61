package webhook

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
)

// echoes answers 500 and repeats the whole request, as debugging pages do.
func echoes(more string) answer {
	return answer{do: func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.URL.Query() {
			w.Header().Add("X-Echo", strings.Repeat("x", 90)+r.Header.Get("Authorization"))
			more += fmt.Sprint(" ", name, "=", values[0])
		}
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintln(w, more, r.URL, r.Header)
	}}
}

// Wherever a secret comes from, an answer that repeats it does not bring it into the error: files, token endpoints, rows,
// queries whose other parts depend on the row, and texts that are cut in the middle of it.
func TestAnswersThatRepeatTheRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("hunter2-from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := "hunter2-" + strings.Repeat("long", 5000)
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"hunter2-from-an-endpoint","token_type":"Bearer","expires_in":3600}`)
	}))
	defer tokens.Close()
	for name, more := range map[string]string{
		"file of a bearer token": fmt.Sprintf(`,"auth":{"type":"bearer","file":%q}`, file),
		"file of a header":       fmt.Sprintf(`,"auth":{"type":"header","name":"X-Who","file":%q}`, file),
		"token endpoint":         fmt.Sprintf(`,"auth":{"type":"oauth2","token_url":%q,"client_id":"c","client_secret":"s"}`, tokens.URL),
		"row":                    `,"headers":{"X-Api-Key":"{header:api-key}"}`,
		"forwarded":              `,"forward_headers":["api-key"]`,
		"cut":                    fmt.Sprintf(`,"auth":{"type":"bearer","token":%q}`, long),
		"captured":               `,"capture":{"headers":["X-Echo"]},"auth":{"type":"bearer","token":"hunter2-captured"}`,
	} {
		r := receive(t)
		r.always(echoes(""))
		s := opened(t, to(r.url()+"/{key}?of={key}&token=hunter2-in-the-query", more))
		sent := record("a", "order-7")
		sent.Headers = []core.Header{{Name: "api-key", Value: "hunter2-of-the-row"}}
		message := send(t, s, sent)[0].Message
		if strings.Contains(message, "hunter2") || !strings.Contains(message, "***") {
			t.Errorf("%s: %s", name, message)
		}
		if !strings.Contains(message, "order-7") {
			t.Errorf("%s: the row's key is hidden: %s", name, message)
		}
	}
}

// TestRepeatedSecrets meets a receiver that answers with everything it was sent: tokens that are in no setting but in a
// file, or were fetched, or come with the row, are shown no more than those of the settings.
func TestRepeatedSecrets(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 100)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("filed-"+long), 0o600); err != nil {
		t.Fatal(err)
	}
	r := receive(t)
	r.always(answer{do: func(w http.ResponseWriter, request *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(strings.Repeat(".", 300) + request.RequestURI + " "))
		_ = request.Header.Write(w)
	}})
	s := opened(t, to(r.url()+"/services/T0123456789abcdef/x?token={header:query}", fmt.Sprintf(
		`,"headers":{"X-Api-Key":"{header:key}"},"auth":{"type":"bearer","file":%q}`, file)))
	row := record("c-1", "order-7")
	row.Headers = []core.Header{{Name: "key", Value: "rows-key"}, {Name: "query", Value: "rows-query"}}
	message := send(t, s, row)[0].Message
	for _, secret := range []string{"filed-", "0123456789abcdef", "rows-key", "rows-query"} {
		if strings.Contains(message, secret) {
			t.Errorf("%q is in %q", secret, message)
		}
	}
	if !strings.Contains(message, "***") || !strings.Contains(message, "Connectd-Key: order-7") {
		t.Errorf("%q does not show the rest", message)
	}
}
