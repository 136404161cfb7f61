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
	long := "hunter2-" + strings.Repeat("long", 1000)
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
