package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/connectd/connectd/sinks/webhook/egress"
)

// Of the published examples: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
const (
	exampleKey    = "AKIDEXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
)

// TestGetVanilla is the test of that name in AWS's suite.
func TestGetVanilla(t *testing.T) {
	a := SigV4(SigV4Config{Region: "us-east-1", Service: "service", AccessKeyID: exampleKey, SecretAccessKey: exampleSecret}).(sigV4)
	a.now = func() time.Time { return time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC) }
	r := &egress.Request{Method: "GET", URL: &url.URL{Scheme: "https", Host: "example.amazonaws.com", Path: "/"}, Header: http.Header{}}
	if err := a.Authorize(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want := "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, " +
		"Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
	if got := r.Header.Get("Authorization"); got != want || r.Header.Get("X-Amz-Date") != "20150830T123600Z" {
		t.Errorf("%s\nwant %s", got, want)
	}
	if a.Refused(r) {
		t.Error("another signature by the same keys is said to do better")
	}
}

// TestSignatureOfWhatArrives signs requests, sends them, and has the receiver sign what it got.
func TestSignatureOfWhatArrives(t *testing.T) {
	for _, service := range []string{"execute-api", "s3"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got, want := r.Header.Get("Authorization"), signedAgain(t, r, service); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
				w.WriteHeader(http.StatusForbidden)
			}
		}))
		t.Cleanup(s.Close)
		client := egress.New(egress.Config{})
		t.Cleanup(client.Close)
		a := SigV4(SigV4Config{
			Region: "eu-central-1", Service: service, AccessKeyID: exampleKey, SecretAccessKey: exampleSecret, SessionToken: "temporary",
		})
		for _, target := range []string{"/", "/a%2Fb%20c/%C3%BC?b=2&a=1&a=%20x%2By&empty=&c", "/x//y/./z"} {
			for _, body := range []string{"", `{"a":1}`} {
				u, err := url.Parse(s.URL + target)
				if err != nil {
					t.Fatal(err)
				}
				before := *u
				r := egress.Request{Method: "POST", URL: u, Body: []byte(body), Header: http.Header{
					"Content-Type": {"application/json"}, "Webhook-Id": {"1"}, "X-Spaces": {"a   b "}, "User-Agent": {"connectd/1"},
				}}
				for range 2 { // the second attempt signs anew
					if err := a.Authorize(t.Context(), &r); err != nil {
						t.Fatal(err)
					}
					answer, err := client.Do(t.Context(), r)
					if err != nil || answer.Status != 200 {
						t.Errorf("%s %s %q: %+v, %v", service, target, body, answer, err)
					}
				}
				if *u != before {
					t.Error("the caller's URL has changed")
				}
			}
		}
	}
}

// signedAgain returns the Authorization header that the request should have.
func signedAgain(t *testing.T, r *http.Request, service string) string {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	sum := sha256.Sum256(body)
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		t.Error(err)
	}
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "SignedHeaders=")
	names, _, _ := strings.Cut(rest, ",")
	header := http.Header{}
	for name := range strings.SplitSeq(names, ";") {
		if values := r.Header.Values(name); len(values) > 0 && name != "content-length" {
			header[http.CanonicalHeaderKey(name)] = values
		}
	}
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		t.Error(err)
	}
	again := &http.Request{Method: r.Method, URL: u, Host: r.Host, Header: header, ContentLength: max(r.ContentLength, 0)}
	err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = service == "s3" }).SignHTTP(t.Context(),
		aws.Credentials{AccessKeyID: exampleKey, SecretAccessKey: exampleSecret, SessionToken: "temporary"},
		again, hex.EncodeToString(sum[:]), service, "eu-central-1", at)
	if err != nil {
		t.Error(err)
	}
	return again.Header.Get("Authorization")
}
