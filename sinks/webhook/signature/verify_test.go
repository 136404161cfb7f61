package signature

import (
	"bytes"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestVerifyRefuses(t *testing.T) {
	now := time.Unix(1674087231, 0)
	good := func() http.Header {
		return request(messageID, "1674087231", Standard(parse(t, keyA, seedKey), messageID, now, []byte(specBody)))
	}
	with := func(name, value string) http.Header {
		h := good()
		h.Set(name, value)
		return h
	}
	a := parse(t, keyA)
	for name, c := range map[string]struct {
		header http.Header
		body   string
		keys   []Key
		want   string
	}{
		"no headers":         {http.Header{}, specBody, a, "the request has no webhook-id, no webhook-timestamp, no webhook-signature"},
		"no id":              {with(HeaderID, ""), specBody, a, "has no webhook-id"},
		"no timestamp":       {with(HeaderTimestamp, ""), specBody, a, "has no webhook-timestamp"},
		"no signature":       {with(HeaderSignature, ""), specBody, a, "has no webhook-signature"},
		"white space only":   {with(HeaderSignature, "  "), specBody, a, "no entry of the kind"},
		"another id":         {with(HeaderID, messageID+"x"), specBody, a, "no signature matches"},
		"another time":       {with(HeaderTimestamp, "1674087232"), specBody, a, "no signature matches"},
		"another body":       {good(), specBody + " ", a, "no signature matches"},
		"no body":            {good(), "", a, "no signature matches"},
		"another key":        {good(), specBody, parse(t, keyB), "no signature matches"},
		"another public key": {good(), specBody, parse(t, "whpk_"+encoded(32)), "no signature matches"},
		"a full stop":        {with(HeaderID, messageID+".1"), specBody, a, "full stop"},
		"milliseconds":       {with(HeaderTimestamp, "1674087231000"), specBody, a, "not a number of seconds"},
		"no number":          {with(HeaderTimestamp, "now"), specBody, a, "not a number of seconds"},
		"sign":               {with(HeaderTimestamp, "+1674087231"), specBody, a, "not a number of seconds"},
		"minus":              {with(HeaderTimestamp, "-1"), specBody, a, "not a number of seconds"},
		"leading zero":       {with(HeaderTimestamp, "01674087231"), specBody, a, "not a number of seconds"},
		"huge":               {with(HeaderTimestamp, "99999999999999999999"), specBody, a, "not a number of seconds"},
		"no keys":            {good(), specBody, nil, "no key to verify with"},
		"zero key":           {good(), specBody, []Key{{}}, "no key to verify with"},
		"other versions":     {with(HeaderSignature, "v2,AAAA v10,AAAA v1 v1=AAAA ,"), specBody, a, "kind that whsec_*** makes (v1)"},
		"only ed25519":       {with(HeaderSignature, "v1a,AAAA"), specBody, a, "kind that whsec_*** makes (v1)"},
		"no base64":          {with(HeaderSignature, "v1a,!"), specBody, parse(t, seedPublic), "no signature matches"},
		"no base64, secret":  {with(HeaderSignature, "v1,!"), specBody, a, "no signature matches"},
		"empty entries":      {with(HeaderSignature, "v1, v1a,"), specBody, append(parse(t, seedPublic), a...), "no signature matches"},
		"too many entries":   {with(HeaderSignature, strings.Repeat("v1,AAAA ", 17)), specBody, a, "more than 16 entries"},
	} {
		id, err := Verify(c.header, []byte(c.body), c.keys, now, 5*time.Minute)
		if id != "" || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v; want an error with %q", name, id, err, c.want)
		}
	}
	for _, name := range []string{HeaderID, HeaderTimestamp, HeaderSignature} {
		h := good()
		h.Add(name, "another")
		if _, err := Verify(h, []byte(specBody), a, now, time.Minute); err == nil || !strings.Contains(err.Error(), "2 headers "+name) {
			t.Errorf("two headers %s: %v", name, err)
		}
	}
}

func TestVerifyAcceptsEitherKey(t *testing.T) {
	now := time.Unix(1674087231, 0)
	signatures := Standard(parse(t, keyA, seedKey), messageID, now, []byte(specBody))
	first, second, _ := strings.Cut(signatures, " ")
	for name, value := range map[string]string{
		"as made": signatures, "turned round": second + " " + first, "after unknown ones": "v2,AAAA v1 nonsense v1,AAAA v1a,AAAA " + signatures,
		"two spaces": first + "  " + second,
	} {
		for _, keys := range [][]Key{
			parse(t, keyA), parse(t, seedPublic), parse(t, keyB, keyA), parse(t, keyA, keyB), parse(t, keyB, seedPublic), {{}, parse(t, keyA)[0]},
		} {
			id, err := Verify(request(messageID, "1674087231", value), []byte(specBody), keys, now, 0)
			if err != nil || id != messageID {
				t.Errorf("%s, %v: %q, %v", name, keys, id, err)
			}
		}
	}
}

func TestVerifyTolerance(t *testing.T) {
	at := time.Unix(1674087231, 0)
	keys := parse(t, keyA)
	h := request("row-1", "1674087231", Standard(keys, "row-1", at, nil))
	for name, c := range map[string]struct {
		age, tolerance time.Duration
		want           string
	}{
		"now":            {0, 5 * time.Minute, ""},
		"just in time":   {5 * time.Minute, 5 * time.Minute, ""},
		"too old":        {5*time.Minute + 1, 5 * time.Minute, "is 5m0s ago, more than 5m0s"},
		"a day old":      {24 * time.Hour, 5 * time.Minute, "is 24h0m0s ago"},
		"just early":     {-5 * time.Minute, 5 * time.Minute, ""},
		"too early":      {-5*time.Minute - 1, 5 * time.Minute, "is 5m0s in the future"},
		"no tolerance":   {time.Second, 0, "is 1s ago"},
		"below zero":     {0, -time.Second, "more than -1s"},
		"any":            {24 * time.Hour, math.MaxInt64, ""},
		"any, and early": {-24 * time.Hour, math.MaxInt64, ""},
	} {
		_, err := Verify(h, nil, keys, at.Add(c.age), c.tolerance)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// The most distant timestamp that can be written must not turn into an early one by overflow.
	far := time.Unix(999999999999, 0)
	h = request("row-1", "999999999999", Standard(keys, "row-1", far, nil))
	if _, err := Verify(h, nil, keys, at, math.MaxInt64); err == nil || !strings.Contains(err.Error(), "in the future") {
		t.Errorf("the year 33658: %v", err)
	}
}

// FuzzVerify: whatever comes, only what was signed is accepted.
func FuzzVerify(f *testing.F) {
	keys := parse(f, keyA, seedKey)
	at := time.Unix(1674087231, 0)
	f.Add(messageID, "1674087231", Standard(keys, messageID, at, []byte(specBody)), []byte(specBody))
	f.Add("row-1", "0", "v1,AAAA v1a,AAAA", []byte{})
	f.Add("a.b", "-1", "", []byte("x"))
	f.Fuzz(func(t *testing.T, id, timestamp, signatures string, body []byte) {
		got, err := Verify(request(id, timestamp, signatures), body, keys, at, time.Hour)
		if err != nil {
			return
		}
		signed, err := parseTimestamp(timestamp)
		if err != nil || got != id || strings.Contains(id, ".") {
			t.Fatalf("accepted %q %q: %v", id, timestamp, err)
		}
		for entry := range strings.FieldsSeq(Standard(keys, id, signed, bytes.Clone(body))) {
			if strings.Contains(signatures, entry) {
				return
			}
		}
		t.Errorf("accepted %q %q %q", id, timestamp, signatures)
	})
}
