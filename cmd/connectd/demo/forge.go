package demo

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/connectd/connectd/sinks/webhook/signature"
)

// forgeries is how many commands are forged in a show.
const forgeries = 1

// forge sends a command as somebody does who does not have the secret, and returns the status of the receiver's answer.
func forge(ctx context.Context, url string) (status int, err error) {
	stranger, err := signature.ParseKey(newSecret())
	if err != nil {
		return 0, fmt.Errorf("another secret %w", err)
	}
	const id, body = "order-0", `{"order":0,"cents":1}`
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("forge a command: %w", err)
	}
	now := time.Now()
	q.Header.Set(signature.HeaderID, id)
	q.Header.Set(signature.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	q.Header.Set(signature.HeaderSignature, signature.Standard([]signature.Key{stranger}, id, now, []byte(body)))
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(q)
	if err != nil {
		return 0, fmt.Errorf("forge a command: %w", err)
	}
	_ = response.Body.Close()
	return response.StatusCode, nil
}
