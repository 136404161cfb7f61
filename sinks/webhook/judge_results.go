package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/connectd/connectd/core"
)

// perRow reads the rows' own results in an answer to several: a list of objects with the row's id and a status, which
// means what it would mean as the status of an answer to that row alone. Of a row that is not in the list nobody knows
// what became of it; of one that is there twice, the failure counts.
func (j *judge) perRow(m *message, status int, body []byte) verdict {
	unknown := core.Outcome{Kind: core.Retryable, Unknown: true, Code: "no_result", Message: "the answer says nothing of this row"}
	list, err := j.resultList(body)
	if err != nil {
		unknown.Message = fmt.Sprintf("the receiver answered %d %s, and has no results of rows: %v", status, http.StatusText(status), err)
		return verdict{outcome: unknown}
	}
	place := make(map[string]int, len(m.rowIDs))
	outcomes := make([]core.Outcome, len(m.rowIDs))
	for i, id := range m.rowIDs {
		place[id], outcomes[i] = i, unknown
	}
	for _, result := range list {
		i, known := place[result.id]
		if !known || outcomes[i].Kind != core.Delivered && outcomes[i].Code != unknown.Code {
			continue
		}
		outcomes[i] = j.rowOutcome(result.status)
	}
	return verdict{outcome: unknown, perRecord: outcomes}
}

// rowOutcome is what a row's own status means. It is about that row, whatever it says.
func (j *judge) rowOutcome(status int) core.Outcome {
	if status != http.StatusMultiStatus && j.succeeded(status) {
		return j.delivered(status)
	}
	meant := j.meaning(status)
	return core.Outcome{
		Kind: meant.kind, Scope: core.ScopeRecord, Unknown: meant.unknown, RetryAfter: meant.wait,
		Code: fmt.Sprintf("http_%03d", status), Message: fmt.Sprintf("the receiver's result for this row is %d %s", status, http.StatusText(status)),
	}
}

type rowResult struct {
	id     string
	status int
}

// resultList finds the list that batch.per_row_results points to.
func (j *judge) resultList(body []byte) ([]rowResult, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, fmt.Errorf("its body is not JSON, is longer than %d bytes, or did not come in time", maxResults)
	}
	for _, name := range j.results {
		if v = member(v, name); v == nil {
			return nil, fmt.Errorf("there is nothing where batch.per_row_results points to")
		}
	}
	entries, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("batch.per_row_results does not point to a list")
	}
	var list []rowResult
	for _, entry := range entries {
		if result, ok := readResult(entry); ok {
			list = append(list, result)
		}
	}
	return list, nil
}

// member is what a JSON object or list has under a name, or nil.
func member(v any, name string) any {
	switch v := v.(type) {
	case map[string]any:
		return v[name]
	case []any:
		if i, err := strconv.ParseUint(name, 10, 31); err == nil && int(i) < len(v) {
			return v[i]
		}
	}
	return nil
}

// readResult reads {"id": "...", "status": 200}. Both may be a number or its text.
func readResult(entry any) (rowResult, bool) {
	object, ok := entry.(map[string]any)
	if !ok {
		return rowResult{}, false
	}
	id, _ := asString(object["id"])
	text, _ := asString(object["status"])
	status, err := strconv.Atoi(text)
	return rowResult{id, status}, err == nil && status >= 100 && status <= 999
}
