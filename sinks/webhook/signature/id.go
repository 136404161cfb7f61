package signature

import (
	"encoding/base64"
	"errors"
	"strings"
)

// encodedPrefix marks an id that was encoded.
const encodedPrefix = "b64_"

var idEncoding = base64.RawURLEncoding.Strict()

// EncodeID makes a row's id a webhook-id, which may have no full stop and, as an HTTP header, nothing that is not
// ASCII. An id of letters, digits, "-" and "_" stays as it is. Any other, and one that begins with "b64_", becomes
// "b64_" and its base64 (RFC 4648 section 5, without padding). Two ids never become one.
func EncodeID(id string) string {
	if plainID(id) {
		return id
	}
	return encodedPrefix + idEncoding.EncodeToString([]byte(id))
}

// DecodeID gives back what EncodeID was given. It refuses what EncodeID does not make.
func DecodeID(header string) (string, error) {
	if plainID(header) {
		return header, nil
	}
	encoded, found := strings.CutPrefix(header, encodedPrefix)
	if !found {
		return "", errors.New(`must be letters, digits, "-" and "_", or "b64_" and base64`)
	}
	id, err := idEncoding.DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") { // package base64 passes over line ends
		return "", errors.New(`must be base64 after "b64_": the URL-safe kind, without padding`)
	}
	if plainID(string(id)) {
		return "", errors.New(`must not be encoded: without "b64_" it is allowed as it is`)
	}
	return string(id), nil
}

// plainID says whether an id is sent as it is.
func plainID(id string) bool {
	for _, c := range []byte(id) {
		if !isAlphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return id != "" && !strings.HasPrefix(id, encodedPrefix)
}
