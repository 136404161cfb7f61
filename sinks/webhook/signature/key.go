package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// The prefixes of serialised keys, by which the specification tells their kinds apart.
const (
	secretPrefix  = "whsec_" // symmetric
	privatePrefix = "whsk_"  // ed25519, signs
	publicPrefix  = "whpk_"  // ed25519, verifies
)

// The bytes of a symmetric secret: the specification's 192 to 512 bits.
const (
	minSecret = 24
	maxSecret = 64
)

var errAround = errors.New("must have no white space or line end around it")

// Key signs or verifies. It does not show itself: printed or logged it is its prefix and three asterisks. The zero Key
// signs nothing and verifies nothing. A Key may be copied and used by several goroutines.
type Key struct {
	prefix, tag string
	// What a key does is in functions, not in fields: package fmt reads those, and what they point to, without asking
	// the key's methods.
	sign func(head, body []byte) string                   // base64; nil for a key that only verifies
	same func(head, body []byte) func(signed string) bool // says whether base64 is a signature of head and body
}

func symmetric(secret []byte) Key {
	sign := func(head, body []byte) string { return base64.StdEncoding.EncodeToString(sum(secret, head, body)) }
	same := func(head, body []byte) func(string) bool {
		want := []byte(sign(head, body))
		return func(signed string) bool { return hmac.Equal([]byte(signed), want) }
	}
	return Key{secretPrefix, symmetricTag, sign, same}
}

func private(seed []byte) Key {
	whole := ed25519.NewKeyFromSeed(seed)
	k := public(whole[ed25519.SeedSize:])
	k.prefix = privatePrefix
	k.sign = func(head, body []byte) string {
		return base64.StdEncoding.EncodeToString(ed25519.Sign(whole, slices.Concat(head, body)))
	}
	return k
}

func public(point []byte) Key {
	same := func(head, body []byte) func(string) bool {
		message := slices.Concat(head, body)
		return func(signed string) bool {
			signature, err := base64.StdEncoding.Strict().DecodeString(signed)
			return err == nil && ed25519.Verify(point, message, signature)
		}
	}
	return Key{publicPrefix, asymmetricTag, nil, same}
}

// ParseKey reads a key that signs: "whsec_" and the base64 of 24 to 64 bytes, or "whsk_" and that of an ed25519 private
// key, either its seed of 32 bytes or seed and public key, 64 bytes. The base64 is the standard one, padded, and
// nothing may stand around it. The errors say what the text must be and never repeat any of it.
func ParseKey(text string) (Key, error) {
	switch {
	case strings.HasPrefix(text, secretPrefix):
		return parseSecret(text)
	case strings.HasPrefix(text, privatePrefix):
		return parsePrivate(text)
	case strings.HasPrefix(text, publicPrefix):
		return Key{}, errors.New(`must be a key that signs: "whpk_" is a public key, the private one begins with "whsk_"`)
	default:
		return Key{}, wrongPrefix(text, `"whsec_" or "whsk_"`)
	}
}

// ParseVerifyKey reads a key that verifies: "whsec_" as ParseKey does, or "whpk_" and the base64 of an ed25519 public
// key of 32 bytes.
func ParseVerifyKey(text string) (Key, error) {
	switch {
	case strings.HasPrefix(text, secretPrefix):
		return parseSecret(text)
	case strings.HasPrefix(text, publicPrefix):
		point, err := decodeKey(text, publicPrefix)
		if err != nil {
			return Key{}, err
		}
		if len(point) != ed25519.PublicKeySize {
			return Key{}, fmt.Errorf("must hold %d bytes after %q, not %d", ed25519.PublicKeySize, publicPrefix, len(point))
		}
		return public(point), nil
	case strings.HasPrefix(text, privatePrefix):
		return Key{}, errors.New(`must be a key that verifies: "whsk_" is a private key, which stays with the sender; the public one begins with "whpk_"`)
	default:
		return Key{}, wrongPrefix(text, `"whsec_" or "whpk_"`)
	}
}

func wrongPrefix(text, want string) error {
	switch {
	case text == "":
		return errors.New("must not be empty")
	case strings.TrimSpace(text) != text:
		return errAround
	default:
		return errors.New("must begin with " + want)
	}
}

func parseSecret(text string) (Key, error) {
	secret, err := decodeKey(text, secretPrefix)
	switch {
	case err != nil:
		return Key{}, err
	case bytes.HasPrefix(secret, []byte(secretPrefix)):
		return Key{}, errors.New(`must be encoded once: after "whsec_" comes the base64 of a text that begins with "whsec_" itself`)
	case len(secret) < minSecret || len(secret) > maxSecret:
		return Key{}, fmt.Errorf("must hold %d to %d bytes after %q, not %d", minSecret, maxSecret, secretPrefix, len(secret))
	}
	return symmetric(secret), nil
}

func parsePrivate(text string) (Key, error) {
	data, err := decodeKey(text, privatePrefix)
	if err != nil {
		return Key{}, err
	}
	if len(data) != ed25519.SeedSize && len(data) != ed25519.PrivateKeySize {
		return Key{}, fmt.Errorf("must hold %d or %d bytes after %q, not %d", ed25519.SeedSize, ed25519.PrivateKeySize, privatePrefix, len(data))
	}
	seed := data[:ed25519.SeedSize]
	if len(data) == ed25519.PrivateKeySize && !bytes.Equal(data, ed25519.NewKeyFromSeed(seed)) {
		return Key{}, errors.New("must be one key: its last 32 bytes are not the public key of its first 32")
	}
	return private(seed), nil
}

// decodeKey decodes the base64 behind the prefix. Package base64 passes over line ends, and its errors show where
// a secret is broken, so characters and padding are looked at first.
func decodeKey(text, prefix string) ([]byte, error) {
	if strings.TrimSpace(text) != text {
		return nil, errAround
	}
	encoded := text[len(prefix):]
	digits := strings.TrimRight(encoded, "=")
	for _, c := range []byte(digits) {
		switch {
		case c == '-' || c == '_':
			return nil, fmt.Errorf(`must be standard base64 after %q, with "+" and "/", not the URL-safe kind with "-" and "_"`, prefix)
		case !isAlphanumeric(c) && c != '+' && c != '/':
			return nil, fmt.Errorf("must be standard base64 after %q, and has a character that is not", prefix)
		}
	}
	if len(encoded)%4 != 0 || len(encoded)-len(digits) > 2 {
		return nil, fmt.Errorf(`must be padded base64 after %q: with "=" at its end its length is a multiple of four`, prefix)
	}
	data, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("must be base64 as an encoder writes it after %q: it has bits that mean nothing", prefix)
	}
	return data, nil
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func (k Key) String() string {
	if k.prefix == "" {
		return ""
	}
	return k.prefix + "***"
}

// LogValue keeps package slog from the key.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }
