package signature

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxEntries bounds the work that a request can cause: each entry is compared with each key.
const maxEntries = 16

// Verify checks a request by its headers and its body, the bytes as they came: one entry of the signature header must
// have been made with one of the keys, and the timestamp be within tolerance of now, before or after. It returns the
// webhook-id as it was sent, the same for every copy of a message; DecodeID makes it a row's id. Only when the error is
// nil is anything about the request to be believed.
//
// How long it takes says nothing about how much of a signature is right. The timestamp is judged last: an error that
// calls it too old or too new means that all else is right.
func Verify(h http.Header, body []byte, keys []Key, now time.Time, tolerance time.Duration) (id string, err error) {
	var missing []string
	read := func(name string) string {
		values := h.Values(name)
		switch {
		case len(values) == 0 || values[0] == "":
			missing = append(missing, name)
			return ""
		case len(values) > 1 && err == nil:
			err = fmt.Errorf("the request has %d headers %s", len(values), name)
		}
		return values[0]
	}
	id, timestamp, signatures := read(HeaderID), read(HeaderTimestamp), read(HeaderSignature)
	if missing != nil {
		return "", fmt.Errorf("the request has no %s", strings.Join(missing, ", no "))
	}
	if err != nil {
		return "", err
	}
	if strings.Contains(id, ".") {
		// It would not be known where the id ends and the timestamp begins in what was signed.
		return "", fmt.Errorf("%s has a full stop", HeaderID)
	}
	at, err := parseTimestamp(timestamp)
	if err != nil {
		return "", err
	}
	if err := match(signatures, signedHead(id, timestamp), body, keys); err != nil {
		return "", err
	}
	switch {
	case at.Before(now.Add(-tolerance)):
		return "", fmt.Errorf("%s is %v ago, more than %v", HeaderTimestamp, now.Sub(at).Round(time.Second), tolerance)
	case at.After(now.Add(tolerance)):
		return "", fmt.Errorf("%s is %v in the future, more than %v", HeaderTimestamp, at.Sub(now).Round(time.Second), tolerance)
	}
	return id, nil
}

// parseTimestamp reads Unix seconds as a sender writes them: digits, no sign, no leading zero. Twelve are enough for
// 30,000 years.
func parseTimestamp(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || len(text) > 12 || strconv.FormatInt(seconds, 10) != text || seconds < 0 {
		return time.Time{}, fmt.Errorf("%s is not a number of seconds", HeaderTimestamp)
	}
	return time.Unix(seconds, 0), nil
}

// match says why no entry was made with any of the keys; nil if one was. Entries of kinds that no key makes are passed
// over.
func match(signatures string, head, body []byte, keys []Key) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return k.same == nil })
	if len(keys) == 0 {
		return errors.New("there is no key to verify with")
	}
	entries := strings.Fields(signatures)
	if len(entries) > maxEntries {
		return fmt.Errorf("%s has more than %d entries", HeaderSignature, maxEntries)
	}
	matched, compared := false, false
	for _, k := range keys {
		same := k.same(head, body)
		for _, entry := range entries {
			if tag, signed, found := strings.Cut(entry, ","); found && tag == k.tag {
				compared = true
				matched = same(signed) || matched
			}
		}
	}
	switch {
	case matched:
		return nil
	case !compared:
		return fmt.Errorf("%s has no entry of the kind that %v makes (%s)", HeaderSignature, keys[0], keys[0].tag)
	default:
		return errors.New("no signature matches: it was made with another key, or id, timestamp or body are not those that were signed")
	}
}
