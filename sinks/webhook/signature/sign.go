// Package signature signs and verifies webhooks as Standard Webhooks 1.0.0 says
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md), signs them as GitHub and
// Stripe do, and writes ids and other text in the forms that are safe in HTTP headers. It touches neither the network
// nor a clock.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp" // Unix seconds of this attempt
	HeaderSignature = "webhook-signature"
)

// The tags of the entries in the signature header.
const (
	symmetricTag  = "v1"
	asymmetricTag = "v1a"
)

// Standard returns the value of the webhook-signature header: for each key, in their order, an entry with the signature
// of the id, the timestamp and these very bytes, so that a receiver may know either key while one replaces the other.
// The id must have no full stop: see EncodeID. Keys that cannot sign are passed over.
func Standard(keys []Key, id string, at time.Time, body []byte) string {
	head := signedHead(id, strconv.FormatInt(at.Unix(), 10))
	entries := make([]string, 0, len(keys))
	for _, k := range keys {
		if k.sign != nil {
			entries = append(entries, k.tag+","+k.sign(head, body))
		}
	}
	return strings.Join(entries, " ")
}

// signedHead is what is signed before the body.
func signedHead(id, timestamp string) []byte { return []byte(id + "." + timestamp + ".") }

// GitHub returns the value of the X-Hub-Signature-256 header
// (https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries).
func GitHub(secret, body []byte) string { return "sha256=" + hex.EncodeToString(sum(secret, body)) }

// Stripe returns the value of the Stripe-Signature header, with a v1 signature for each secret
// (https://docs.stripe.com/webhooks#verify-manually). A secret is taken as it is, its "whsec_" included.
func Stripe(secrets [][]byte, at time.Time, body []byte) string {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	value := "t=" + timestamp
	for _, secret := range secrets {
		value += ",v1=" + hex.EncodeToString(sum(secret, []byte(timestamp+"."), body))
	}
	return value
}

// sum is the HMAC-SHA256 of the parts, one after the other.
func sum(secret []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, secret)
	for _, p := range parts {
		_, _ = mac.Write(p)
	}
	return mac.Sum(nil)
}
