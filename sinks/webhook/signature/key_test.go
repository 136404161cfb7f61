package signature

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func encoded(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, n)) }

func TestKeysAreRefused(t *testing.T) {
	urlSafe := base64.URLEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, 24))
	for name, c := range map[string]struct{ text, want string }{
		"empty":               {"", "must not be empty"},
		"prefix only":         {"whsec_", "24 to 64 bytes"},
		"23 bytes":            {"whsec_" + encoded(23), "24 to 64 bytes after \"whsec_\", not 23"},
		"65 bytes":            {"whsec_" + encoded(65), "not 65"},
		"no prefix":           {encoded(32), `must begin with "whsec_" or "whsk_"`},
		"upper-case prefix":   {"WHSEC_" + encoded(32), "must begin with"},
		"with a tag":          {"v1," + keyA, "must begin with"},
		"public":              {seedPublic, "must be a key that signs"},
		"unpadded":            {strings.TrimRight(keyA, "="), "must be padded"},
		"half padded":         {strings.TrimSuffix(keyB, "="), "must be padded"},
		"padded too much":     {keyA + "====", "must be padded"},
		"padding in between":  {"whsec_AAA=" + encoded(24), "not"},
		"URL-safe":            {"whsec_" + urlSafe, "URL-safe"},
		"not canonical":       {strings.Replace(keyA, "8=", "9=", 1), "bits that mean nothing"},
		"line end":            {keyA + "\n", "white space or line end"},
		"line end inside":     {keyA[:10] + "\n" + keyA[10:], "must be standard base64"},
		"white space before":  {" " + keyA, "white space"},
		"white space after":   {keyA + " ", "white space"},
		"hexadecimal":         {"whsec_" + strings.Repeat("0g", 32) + "!", "must be standard base64"},
		"encoded twice":       {"whsec_" + base64.StdEncoding.EncodeToString([]byte(published)), "must be encoded once"},
		"private, 31 bytes":   {"whsk_" + encoded(31), "must hold 32 or 64 bytes"},
		"private, 48 bytes":   {"whsk_" + encoded(48), "not 48"},
		"private, two halves": {"whsk_" + encoded(64), "must be one key"},
		"private, unpadded":   {strings.TrimRight(seedKey, "="), "must be padded"},
		"private, empty":      {"whsk_", "not 0"},
	} {
		k, err := ParseKey(c.text)
		refused(t, name, k, err, c.text, c.want)
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "must not be empty"},
		"private":          {seedKey, "must be a key that verifies"},
		"no prefix":        {encoded(32), `must begin with "whsec_" or "whpk_"`},
		"public, 64 bytes": {"whpk_" + encoded(64), "must hold 32 bytes"},
		"public, unpadded": {strings.TrimRight(seedPublic, "="), "must be padded"},
		"secret, 23 bytes": {"whsec_" + encoded(23), "24 to 64"},
	} {
		k, err := ParseVerifyKey(c.text)
		refused(t, "to verify: "+name, k, err, c.text, c.want)
	}
}

func refused(t *testing.T, name string, k Key, err error, text, want string) {
	t.Helper()
	if err == nil || k.same != nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want an error with %q", name, err, want)
	}
	if err != nil && leaks(err.Error(), text) {
		t.Errorf("%s: the error shows the key: %v", name, err)
	}
}

// keyBytes is what a key's text holds.
func keyBytes(text string) []byte {
	_, encoded, _ := strings.Cut(text, "_")
	data, _ := base64.StdEncoding.DecodeString(encoded)
	return data
}

// leaks says whether text repeats a part of the key's base64.
func leaks(text, key string) bool {
	_, secret, _ := strings.Cut(key, "_")
	for i := range len(secret) - 4 {
		if strings.Contains(text, secret[i:i+5]) {
			return true
		}
	}
	return false
}

func TestKeysOfEverySizeAreAccepted(t *testing.T) {
	for n := minSecret; n <= maxSecret; n++ {
		parse(t, "whsec_"+encoded(n))
	}
	verify, err := ParseVerifyKey(keyA)
	if err != nil || verify.same == nil {
		t.Errorf("a secret verifies too: %v", err)
	}
}

// TestKeysDoNotShowThemselves, however deep they are and whatever prints them.
func TestKeysDoNotShowThemselves(t *testing.T) {
	for _, text := range []string{keyA, keyB, published, seedKey, wholeKey, seedPublic} {
		k := parse(t, text)[0]
		deep := struct {
			Name string
			K    *Key
			list []Key
		}{"name", &k, []Key{k}}
		var b bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&b, verb+verb+verb+"\n", k, &k, deep)
		}
		slog.New(slog.NewTextHandler(&b, nil)).Info("a", "key", k, "deep", deep)
		slog.New(slog.NewJSONHandler(&b, nil)).Info("a", "key", k, "deep", deep)
		if err := json.NewEncoder(&b).Encode(deep); err != nil {
			t.Fatal(err)
		}
		for _, part := range [][]byte{keyBytes(text), keyBytes(seedPublic)} {
			for _, shown := range []string{fmt.Sprint(part), fmt.Sprintf("%x", part), fmt.Sprintf("%#v", part), string(part)} {
				if strings.Contains(b.String(), shown[1:len(shown)-1]) {
					t.Errorf("%v shows itself in\n%s", k, b.String())
				}
			}
		}
		if leaks(b.String(), text) || !strings.Contains(b.String(), "***") {
			t.Errorf("%v shows itself in\n%s", k, b.String())
		}
	}
	if got := fmt.Sprint(Key{}); got != "" {
		t.Errorf("the zero key is %q", got)
	}
}

// keyTexts are keys, and texts that nearly are.
func keyTexts() []string {
	return []string{
		keyA, keyB, published, seedKey, wholeKey, seedPublic, "", "whsec_", "whsk_", "whpk_", "whsec_" + encoded(24), "whsec_" + encoded(64),
		"whsec_" + encoded(23), "whsec_" + encoded(65), keyA[:20], keyA + "\n", strings.TrimRight(keyB, "="), "whsec_====", "whsec_A===",
	}
}

// FuzzParseKey: a key that is accepted is the one way to write its bytes, and no error repeats what was refused.
func FuzzParseKey(f *testing.F) {
	for _, text := range keyTexts() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func(string) (Key, error){ParseKey, ParseVerifyKey} {
			k, err := read(text)
			if err != nil {
				if len(text) > 16 && strings.Contains(err.Error(), text) {
					t.Errorf("the error repeats %q: %v", text, err)
				}
				continue
			}
			if again := k.prefix + base64.StdEncoding.EncodeToString(keyBytes(text)); again != text {
				t.Errorf("%q was accepted, and is %q", text, again)
			}
			if _, err := Verify(request("1", "0", Standard([]Key{k}, "1", time.Unix(0, 0), nil)), nil, []Key{k}, time.Unix(0, 0), 0); err != nil && k.sign != nil {
				t.Errorf("%q does not verify what it signed: %v", text, err)
			}
		}
	})
}
