package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// maxDrain is how much more of an answer's body than is captured is read, so that the connection can be used again.
const maxDrain = 64 << 10

// Answer is what the destination said. Its status decides: a body that broke off, or never ended, is no failure.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // the first Config.Capture bytes of it, as they came
	Whole  bool   // Body is all of it
	Took   Took
}

// read takes from the response what is wanted, within the limits of size and time, and closes it. cancel ends the exchange.
func (c *Client) read(response *http.Response, took Took, cancel context.CancelFunc) *Answer {
	defer response.Body.Close()
	answer := &Answer{Status: response.StatusCode, Header: response.Header, Took: took}
	if response.StatusCode == http.StatusSwitchingProtocols {
		return answer // what would follow is another protocol
	}
	if response.ContentLength == 0 {
		answer.Whole = true
		return answer
	}
	start := time.Now()
	timer := time.AfterFunc(c.config.Body, func() {
		cancel()
		// HTTP/2 does not look at the context while it waits for leave to send the rest of the request's body.
		_ = response.Body.Close()
	})
	defer timer.Stop()
	answer.Body, answer.Whole = capture(response.Body, c.config.Capture)
	answer.Took.Body = time.Since(start)
	return answer
}

// capture reads up to limit bytes to keep, and some more to throw away. It says whether the former are all there are.
func capture(body io.Reader, limit int) (kept []byte, whole bool) {
	kept, err := io.ReadAll(io.LimitReader(body, int64(limit)))
	if err != nil || len(kept) < limit {
		return kept, err == nil
	}
	n, err := io.CopyN(io.Discard, body, maxDrain)
	return kept, n == 0 && errors.Is(err, io.EOF)
}
