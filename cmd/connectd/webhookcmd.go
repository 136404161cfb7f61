package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/sinks/webhook/signature"
)

// What these commands read is bounded, in bytes.
const (
	maxWebhookSecret  = 4 << 10
	maxWebhookHeaders = 1 << 20
	maxWebhookBody    = 64 << 20
)

func webhookCommand() *command {
	return &command{
		name: "webhook", short: "sign a webhook by hand, or verify one that was received",
		long: "For those who write receivers: the signatures are those of Standard Webhooks, as the webhook sink makes them.",
		subs: []*command{
			{
				name: "sign", args: "[BODY]", short: "print the three headers that sign a body",
				long: `Reads the body from the file BODY, or from stdin, and signs its very bytes. The headers are ready for curl:

  connectd webhook sign --secret-env SECRET --id order-1 body.json |
    curl --json @body.json -H @- http://127.0.0.1:8080/hooks`,
				bind: bindWebhookSign,
			},
			{
				name: "verify", args: "[BODY]", short: "say whether a request's signature is valid, or why not",
				long: `Reads the request's headers, one a line, and its body, the very bytes that were received. Headers that have nothing
to do with the signature are passed over. Exit code 0: valid, 1: not valid. A request that was kept for longer than
five minutes needs another --tolerance.`,
				bind: bindWebhookVerify,
			},
		},
	}
}

func bindWebhookSign(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
	secret := p.secretFlags(fs)
	id := fs.String("id", "", "the row's `ID`")
	at := time.Now()
	fs.Func("timestamp", "sign as at this moment, in Unix `SECONDS`, instead of now", func(text string) error {
		seconds, err := strconv.ParseUint(text, 10, 40)
		if err != nil {
			return errors.New("must be a whole number of seconds")
		}
		at = time.Unix(int64(seconds), 0)
		return nil
	})
	asJSON := fs.Bool("json", false, "print JSON")
	return func(_ context.Context, args []string) error {
		switch {
		case *id == "":
			return usagef("webhook sign needs --id ID, the row's id")
		case len(args) > 1:
			return usagef("webhook sign takes one BODY")
		}
		key, err := secret.read(signature.ParseKey)
		if err != nil {
			return err
		}
		body, err := p.content("the body", append(args, "-")[0], maxWebhookBody)
		if err != nil {
			return err
		}
		return p.printSigned(signature.EncodeID(*id), at, key, body, *asJSON)
	}
}

func (p *program) printSigned(id string, at time.Time, key signature.Key, body []byte, asJSON bool) error {
	headers := [][2]string{
		{signature.HeaderID, id},
		{signature.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10)},
		{signature.HeaderSignature, signature.Standard([]signature.Key{key}, id, at, body)},
	}
	if asJSON {
		object := map[string]string{}
		for _, h := range headers {
			object[h[0]] = h[1]
		}
		return printJSON(p.stdout, object)
	}
	for _, h := range headers {
		if _, err := fmt.Fprintf(p.stdout, "%s: %s\n", h[0], h[1]); err != nil {
			return fmt.Errorf("write the headers: %w", err)
		}
	}
	return nil
}

func bindWebhookVerify(p *program, fs *flag.FlagSet) func(context.Context, []string) error {
	secret := p.secretFlags(fs)
	headers := fs.String("headers", "", "the request's headers are in `FILE`, or come from stdin: -")
	var tolerance settings.Duration
	fs.TextVar(&tolerance, "tolerance", settings.Duration(5*time.Minute), "let the timestamp be so far from now: a `DURATION` such as 30s, 2h or 7d")
	asJSON := fs.Bool("json", false, "print JSON")
	return func(_ context.Context, args []string) error {
		body := append(args, "-")[0]
		switch {
		case *headers == "":
			return usagef("webhook verify needs --headers FILE")
		case len(args) > 1:
			return usagef("webhook verify takes one BODY")
		case *headers == "-" && body == "-":
			return usagef("only one of headers and body can come from stdin")
		}
		key, err := secret.read(signature.ParseVerifyKey)
		if err != nil {
			return err
		}
		text, err := p.content("the headers", *headers, maxWebhookHeaders)
		if err != nil {
			return err
		}
		content, err := p.content("the body", body, maxWebhookBody)
		if err != nil {
			return err
		}
		id, err := signature.Verify(parseHeaderLines(string(text)), content, []signature.Key{key}, time.Now(), time.Duration(tolerance))
		return p.printVerified(id, err, *asJSON)
	}
}

// verifiedView is the answer of `webhook verify --json`.
type verifiedView struct {
	Valid     bool   `json:"valid"`
	WebhookID string `json:"webhook_id,omitempty"`
	ID        string `json:"id,omitempty"` // the row's id
	Error     string `json:"error,omitempty"`
}

func (p *program) printVerified(header string, invalid error, asJSON bool) error {
	v := verifiedView{Valid: invalid == nil, WebhookID: header}
	if invalid != nil {
		v.Error = invalid.Error()
	} else if id, err := signature.DecodeID(header); err == nil {
		v.ID = id
	}
	switch {
	case asJSON:
		if err := printJSON(p.stdout, v); err != nil {
			return err
		}
		if !v.Valid {
			return errReported
		}
		return nil
	case !v.Valid:
		return fmt.Errorf("not valid: %w", invalid)
	case v.ID != "":
		fmt.Fprintf(p.stdout, "valid: row %s\n", line(v.ID, 512))
	default:
		// Another sender's id, or the row's id is empty.
		fmt.Fprintf(p.stdout, "valid: %s %s\n", signature.HeaderID, line(header, 512))
	}
	return nil
}

// parseHeaderLines reads lines of names and values; others, such as the request line, have no colon or name a header
// nobody asks for.
func parseHeaderLines(text string) http.Header {
	h := http.Header{}
	for l := range strings.Lines(text) {
		if name, value, found := strings.Cut(l, ":"); found {
			h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return h
}

// secretFlags say where a secret is. It is never an argument itself: other users of the machine can read those.
type secretFlags struct {
	p          *program
	name, file *string
}

func (p *program) secretFlags(fs *flag.FlagSet) secretFlags {
	return secretFlags{
		p:    p,
		name: fs.String("secret-env", "", "the secret is in the environment variable `NAME`"),
		file: fs.String("secret-file", "", "the secret is in `FILE`"),
	}
}

// read returns the key. Its errors do not repeat what the flags say, which may be the secret itself by mistake.
func (s secretFlags) read(parse func(string) (signature.Key, error)) (signature.Key, error) {
	if (*s.name == "") == (*s.file == "") {
		return signature.Key{}, usagef("the secret is needed from one place: --secret-env NAME or --secret-file FILE")
	}
	place, text := "the environment variable that --secret-env names", ""
	if *s.name != "" {
		value, found := s.p.env(*s.name)
		if !found {
			return signature.Key{}, fmt.Errorf("%s is not set", place)
		}
		text = value
	} else {
		place = "the file that --secret-file names"
		data, err := readFile(*s.file, maxWebhookSecret)
		if err != nil {
			if wrong := (*os.PathError)(nil); errors.As(err, &wrong) {
				err = wrong.Err // without the path
			}
			return signature.Key{}, fmt.Errorf("read %s: %w", place, err)
		}
		text = strings.TrimRight(string(data), "\r\n")
	}
	key, err := parse(text)
	if err != nil {
		return key, fmt.Errorf("the secret in %s %w", place, err)
	}
	return key, nil
}

// content reads a file, or stdin for "-".
func (p *program) content(what, path string, limit int64) (data []byte, err error) {
	if path == "-" {
		data, err = readAll(p.stdin, limit)
	} else {
		data, err = readFile(path, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return data, nil
}

func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readAll(f, limit)
}

func readAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	return data, err
}
