package signature

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The keys of the vectors. published is the one in the tests of the official libraries, seed that of RFC 8032's first
// test.
const (
	keyA       = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	keyB       = "whsec_Y29ubmVjdGQtdGVzdC1zZWNyZXQtMzItYnl0ZXMhIQ=="
	published  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	seedKey    = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="
	seedPublic = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
	wholeKey   = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2DXWpgBgrEKt9VL/tPJZAc6DuFy89qmIyWvAhpo9wdRGg=="
)

const (
	messageID = "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"
	// specBody is the example of the specification, section "Signature scheme".
	specBody = `{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52-5198-4599-803e-771906343485"}}`
)

func parse(t testing.TB, texts ...string) (keys []Key) {
	t.Helper()
	for _, text := range texts {
		read := ParseKey
		if strings.HasPrefix(text, publicPrefix) {
			read = ParseVerifyKey
		}
		k, err := read(text)
		if err != nil {
			t.Fatalf("%.9s...: %v", text, err)
		}
		keys = append(keys, k)
	}
	return keys
}

// request is the headers of a signed request.
func request(id, timestamp, signatures string) http.Header {
	h := http.Header{}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, timestamp)
	h.Set(HeaderSignature, signatures)
	return h
}

func allBytes() string {
	var b [256]byte
	for i := range b {
		b[i] = byte(i)
	}
	return string(b[:])
}

// TestStandardVectors: the first is published with the official libraries, the others were made with them; the
// signature of the ed25519 key was computed with another program.
func TestStandardVectors(t *testing.T) {
	for name, c := range map[string]struct {
		keys []string
		id   string
		at   int64
		body string
		want string
	}{
		"published": {[]string{published}, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, `{"test": 2432232314}`, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		"example":   {[]string{keyA}, messageID, 1674087231, specBody, "v1,4PMU5Dl90B4kgwxDpwuMZ/cnZ5ztf+Y+kviYQD66rJg="},
		"no body":   {[]string{keyA}, "row-1", 0, "", "v1,JuGB2AnabHVBs5GnCRLkON+hadfq+cYlNHejsM5eB0A="},
		"UTF-8": {[]string{keyB}, "0192f0c4-7c1e-7a53-9d0b-2f6f5e0a1b2c", 1764426000, `{"name":"Zürich ☃","n":1}`,
			"v1,xw2EYo1RlDrvHVgrwLNEd4rakFPrggcOccNowf/32R0="},
		"all bytes": {[]string{keyB}, "row-2", 4102444800, allBytes(), "v1,sFQovZ5DaReK1iUuxKBaMe1dCNcZUTK1+BGJNrJdsAU="},
		"new key":   {[]string{keyB}, messageID, 1674087231, specBody, "v1,XMNJ+NkURczDlxfUR2r9DVLURo5WfnyaeEs3hWLaXYQ="},
		"rotation": {[]string{keyA, keyB}, messageID, 1674087231, specBody,
			"v1,4PMU5Dl90B4kgwxDpwuMZ/cnZ5ztf+Y+kviYQD66rJg= v1,XMNJ+NkURczDlxfUR2r9DVLURo5WfnyaeEs3hWLaXYQ="},
		"ed25519": {[]string{seedKey}, messageID, 1674087231, specBody,
			"v1a,pbpYBMlty2hExn4zt0UTGb6BaP2Vq5AfyzjB9GGV3x/wCJKd8UjOCf8Qhaji6TKY9C5eNMnlF0GG4udaO6B7Ag=="},
		"ed25519, whole key": {[]string{wholeKey}, messageID, 1674087231, specBody,
			"v1a,pbpYBMlty2hExn4zt0UTGb6BaP2Vq5AfyzjB9GGV3x/wCJKd8UjOCf8Qhaji6TKY9C5eNMnlF0GG4udaO6B7Ag=="},
		"both kinds": {[]string{keyA, seedKey}, messageID, 1674087231, specBody,
			"v1,4PMU5Dl90B4kgwxDpwuMZ/cnZ5ztf+Y+kviYQD66rJg= " +
				"v1a,pbpYBMlty2hExn4zt0UTGb6BaP2Vq5AfyzjB9GGV3x/wCJKd8UjOCf8Qhaji6TKY9C5eNMnlF0GG4udaO6B7Ag=="},
		"keys that cannot sign": {[]string{seedPublic, keyA}, messageID, 1674087231, specBody,
			"v1,4PMU5Dl90B4kgwxDpwuMZ/cnZ5ztf+Y+kviYQD66rJg="},
	} {
		keys := append(parse(t, c.keys...), Key{})
		at := time.Unix(c.at, 999)
		got := Standard(keys, c.id, at, []byte(c.body))
		if got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
		h := request(c.id, strconv.FormatInt(c.at, 10), c.want)
		for _, k := range keys[:len(keys)-1] {
			if k.prefix == publicPrefix {
				continue
			}
			if id, err := Verify(h, []byte(c.body), []Key{k}, at, time.Minute); err != nil || id != c.id {
				t.Errorf("%s: verify with %v: %q, %v", name, k, id, err)
			}
		}
	}
}

// TestGitHubVector is the example of GitHub's documentation.
func TestGitHubVector(t *testing.T) {
	got := GitHub([]byte("It's a Secret to Everybody"), []byte("Hello, World!"))
	if want := "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestStripeVector(t *testing.T) {
	const first = "t=1674087231,v1=9c8615745d7e94f6cddcd73e9a4bb6bb5dc52920935a10f196fd43fa63ef54be"
	at := time.Unix(1674087231, 0)
	if got := Stripe([][]byte{[]byte("whsec_test_secret")}, at, []byte(specBody)); got != first {
		t.Errorf("%s, want %s", got, first)
	}
	got := Stripe([][]byte{[]byte("whsec_test_secret"), []byte("another")}, at, []byte(specBody))
	rest, found := strings.CutPrefix(got, first+",v1=")
	if !found || len(rest) != 64 {
		t.Errorf("two secrets: %s", got)
	}
}
