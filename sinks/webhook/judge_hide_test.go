package webhook

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/connectd/connectd/core"
)

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
