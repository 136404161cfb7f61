package webhook

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/cloudevents"
	"github.com/connectd/connectd/core/jsonrecord"
)

// list says whether a body is a list of records, even if there is one in it.
func (c *config) list() bool { return c.Batch != nil || c.Body == bodyCEBatch }

// perRow says whether answers have an outcome for each row.
func (c *config) perRow() bool { return c.Batch != nil && c.Batch.PerRowResults != nil }

// listBody makes the body of as many records, from the front of which, as one request takes, and says how many that
// are: at least one. The error is about the first.
func (c *composer) listBody(h http.Header, batch []core.Record, which []int) (body []byte, taken int, err error) {
	begin, between, end := "[", ",", "]"
	switch {
	case c.config.Body == bodyCEBatch:
		h[headerContentType] = []string{cloudevents.BatchJSON}
	case c.config.Batch.Format == formatNDJSON:
		h[headerContentType] = []string{c.listType("application/x-ndjson")}
		begin, between, end = "", "\n", "\n"
	default:
		h[headerContentType] = []string{c.listType("application/json")}
	}
	body = append(body, begin...)
	for _, i := range which[:min(len(which), c.config.Batch.MaxRows)] {
		mark := len(body)
		if taken > 0 {
			body = append(body, between...)
		}
		if body, err = c.appendEntry(body, &batch[i]); taken == 0 && err != nil {
			return nil, 0, err
		}
		if size := len(body) + len(end); taken > 0 && (err != nil || size > int(c.config.Batch.MaxBytes) || size > int(c.config.MaxBodyBytes)) {
			body = body[:mark]
			break
		}
		taken++
	}
	return append(body, end...), taken, nil
}

// listType is the Content-Type of a list that is no CloudEvents batch.
func (c *composer) listType(fallback string) string {
	if c.config.ContentType != "" {
		return c.config.ContentType
	}
	return fallback
}

func (c *composer) appendEntry(dst []byte, r *core.Record) ([]byte, error) {
	if c.config.Body != bodyCEBatch {
		return jsonrecord.Append(dst, r, c.config.Batch.Format == formatNDJSON, jsonrecord.AppendString), nil
	}
	contentType, err := c.contentType(r)
	if err != nil {
		return dst, err
	}
	return c.events.AppendJSON(dst, r, contentType)
}

// listID is the webhook-id of a list: the same for the same rows in the same order, another for any other list.
func listID(ids []string) string {
	hash := sha256.New()
	for _, id := range ids {
		_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(id)))) // so that where one id ends counts too
		_, _ = hash.Write([]byte(id))
	}
	return "list_" + base64.RawURLEncoding.EncodeToString(hash.Sum(nil)[:24])
}
