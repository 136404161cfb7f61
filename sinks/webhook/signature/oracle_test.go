package signature

import (
	crand "crypto/rand"
	"encoding/base64"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// TestOfficialModuleAgrees: what one of us signs, the other verifies, over random secrets, ids and bodies.
func TestOfficialModuleAgrees(t *testing.T) {
	now := time.Now()
	for n := range 300 {
		texts := []string{randomSecret(), randomSecret()}
		keys := parse(t, texts...)
		body := randomBytes(rand.IntN(3000))
		id := EncodeID(string(randomBytes(1 + rand.IntN(40))))
		at := now.Add(time.Duration(rand.IntN(500)-250) * time.Second)
		signatures := Standard(keys, id, at, body)
		h := request(id, strconv.FormatInt(at.Unix(), 10), "v9,c29tZXRoaW5nIG5ldw== "+signatures)
		for i, text := range texts {
			official, err := standardwebhooks.NewWebhook(text)
			if err != nil {
				t.Fatalf("run %d: the module refuses a secret: %v", n, err)
			}
			if err := official.Verify(body, h); err != nil {
				t.Errorf("run %d, key %d: the module does not verify: %v", n, i, err)
			}
			theirs, err := official.Sign(id, at, body)
			if err != nil {
				t.Fatal(err)
			}
			if got := Standard(keys[i:i+1], id, at, body); got != theirs {
				t.Errorf("run %d, key %d: %s, the module says %s", n, i, got, theirs)
			}
			// Either of the receiver's keys may be the one.
			h := request(id, strconv.FormatInt(at.Unix(), 10), theirs)
			if got, err := Verify(h, body, keys, now, 5*time.Minute); err != nil || got != id {
				t.Errorf("run %d, key %d: %q, %v", n, i, got, err)
			}
		}
		stranger, err := standardwebhooks.NewWebhook(randomSecret())
		if err != nil {
			t.Fatal(err)
		}
		if stranger.Verify(body, h) == nil {
			t.Errorf("run %d: the module verifies with another key", n)
		}
	}
}

// TestOfficialModuleIsNoStricter: a secret that is accepted here is accepted there, with the same signatures.
func TestOfficialModuleIsNoStricter(t *testing.T) {
	for _, text := range keyTexts() {
		if _, err := ParseKey(text); err != nil || text[:6] != secretPrefix {
			continue
		}
		if _, err := standardwebhooks.NewWebhook(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func randomSecret() string {
	return secretPrefix + base64.StdEncoding.EncodeToString(randomBytes(minSecret+rand.IntN(maxSecret-minSecret+1)))
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = crand.Read(b)
	return b
}
