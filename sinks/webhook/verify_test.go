package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// verify checks a request's signature and returns the command's id. The secret is what follows "whsec_", decoded from base64.
func verify(secret []byte, h http.Header, body []byte, now time.Time) (id string, err error) {
	id = h.Get("webhook-id")
	timestamp := h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return "", errors.New("too old, too new, or no timestamp at all")
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	for _, entry := range strings.Fields(h.Get("webhook-signature")) { // several while a secret is replaced
		signature, found := strings.CutPrefix(entry, "v1,")
		sent, err := base64.StdEncoding.DecodeString(signature)
		if found && err == nil && hmac.Equal(sent, mac.Sum(nil)) {
			return id, nil
		}
	}
	return "", errors.New("not signed by us")
}
