package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/connectd/connectd/sinks/webhook/egress"
)

// SigV4Config is an identity in AWS with static keys, and what it signs for.
type SigV4Config struct {
	Region, Service              string // such as eu-central-1 and execute-api
	AccessKeyID, SecretAccessKey string
	SessionToken                 string // of temporary keys
}

// sigV4 signs requests with AWS Signature Version 4.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html
type sigV4 struct {
	region, service string
	keys            func() aws.Credentials // so that nothing prints them
	signer          *v4.Signer
	now             func() time.Time
}

// SigV4 signs each request with its exact body and all of its headers.
func SigV4(c SigV4Config) Authorizer {
	keys := aws.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken}
	// S3 is the one service that takes the path as it is.
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = c.Service == "s3" })
	return sigV4{c.Region, c.Service, func() aws.Credentials { return keys }, signer, time.Now}
}

// Authorize sets the headers of the signature, and replaces the URL by one whose query is in the order that was signed.
func (s sigV4) Authorize(ctx context.Context, r *egress.Request) error {
	r.Header.Del("Authorization")
	sum := sha256.Sum256(r.Body)
	hash := hex.EncodeToString(sum[:])
	if s.service == "s3" {
		r.Header.Set("X-Amz-Content-Sha256", hash)
	}
	u := *r.URL
	signed := &http.Request{Method: r.Method, URL: &u, Host: u.Host, Header: r.Header, ContentLength: int64(len(r.Body))}
	if err := s.signer.SignHTTP(ctx, s.keys(), signed, hash, s.service, s.region, s.now()); err != nil {
		return errors.New("sign the request for AWS: its URL or headers cannot be signed")
	}
	r.URL = &u
	return nil
}

// Refused reports that the keys are what they are.
func (sigV4) Refused(*egress.Request) bool { return false }
