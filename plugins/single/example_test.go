package single_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/plugins"
	"github.com/connectd/connectd/plugins/single"
)

type config struct {
	URL string          `json:"url" required:"true" doc:"where records are posted"`
	Key settings.Secret `json:"api_key" required:"true" doc:"sent as a bearer token"`
}

// api is a Conn without a connection: the client has its own.
type api struct {
	config
	client *http.Client
}

func connect(_ context.Context, c config) (single.Conn, error) {
	return &api{c, &http.Client{
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (a *api) Send(ctx context.Context, r core.Record) error {
	body, err := json.Marshal(r)
	if err != nil {
		return single.Failure{Kind: core.Permanent, Code: "invalid", Message: err.Error()}
	}
	return a.do(ctx, http.MethodPost, body)
}

func (a *api) Ping(ctx context.Context) error { return a.do(ctx, http.MethodGet, nil) }

func (a *api) Close() error {
	a.client.CloseIdleConnections()
	return nil
}

func (a *api) do(ctx context.Context, method string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, a.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", core.ErrNotSent, err)
	}
	req.Header.Set("Authorization", "Bearer "+a.Key.Reveal())
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	reason, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	failure := single.Failure{Kind: core.Retryable, Code: fmt.Sprintf("http_%d", resp.StatusCode), Message: resp.Status + ": " + string(reason)}
	if resp.StatusCode/100 == 2 {
		return nil
	}
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		failure.Kind = core.Permanent
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		failure.Scope = core.ScopeSink // no record is to blame for our key and our URL
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		failure.Kind = core.Throttled
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			failure.RetryAfter = time.Duration(seconds) * time.Second
		}
	}
	return failure
}

func newSink() core.Sink {
	sink := single.New("api", "1.0.0", connect)
	sink.Limits.MaxRecordBytes = 1 << 20
	return sink
}

// A sink that posts each record to a REST API.
func ExampleNew() {
	plugins.Serve(newSink())
}
