package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/core"
)

const (
	maxRowsBody = 16 << 20         // bytes, of a retry, which may have a payload; a larger one is for the command line
	maxIDsBody  = 4 << 20          // bytes, of the others: 4 KiB for each of the most ids
	maxHeaders  = 1 << 20          // bytes of the headers that a row is to have
	rowsBudget  = 15 * time.Second // after which a call begins no other row
	maxByName   = 128              // bytes of the name that a caller gives itself
)

// rowsRequest is the body of a POST. It names rows by their ids, or chooses them by a filter, or takes all that the verb
// is for.
type rowsRequest struct {
	Connector string          `json:"connector"`
	IDs       []text          `json:"ids" max:"1000"` // rowsPage
	Filter    map[string]text `json:"filter" max:"16"`
	All       bool            `json:"all"`
	After     int64           `json:"after"` // with filter or all: rows whose seq is above it
	Limit     int             `json:"limit"` // of these: rows at most
	Why       string          `json:"why"`
	By        string          `json:"by"`
	DryRun    bool            `json:"dry_run"`
	// Of a retry of one id: what the row is to have.
	Payload       *text           `json:"payload"`
	PayloadBase64 []byte          `json:"payload_base64"`
	Headers       json.RawMessage `json:"headers"` // an object, taken as it is written
}

// postRows retries, skips or releases rows, and says of each what became of it: that one could not be changed does not
// stop the others.
func (s *server) postRows(verb rowwork.Verb, w http.ResponseWriter, r *http.Request) {
	var request rowsRequest
	if err := readBody(r, &request); err != nil {
		s.answer(w, nil, err)
		return
	}
	work, err := request.work(verb, r.RemoteAddr)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	keeper, err := s.keeper(request.Connector)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	work.Connector, work.Rows = keeper.connector, keeper.rows
	ctx, cancel := context.WithTimeout(r.Context(), rowsTimeout)
	defer cancel()
	answer, err := s.do(ctx, work, request.IDs)
	if err != nil {
		s.log.Warn("changing rows over HTTP failed", "connector", keeper.connector, "error", err)
		if len(answer.Rows) == 0 {
			s.answer(w, nil, refuse(http.StatusServiceUnavailable, "connector %s: the rows could not be read", keeper.connector))
			return
		}
		answer.Error = "the database fails: what became of the rows until then is here, and the others were left as they are"
	}
	s.answer(w, answer, nil)
}

// work is what the request asks for.
func (q *rowsRequest) work(verb rowwork.Verb, remote string) (*rowwork.Work, error) {
	ways := 0
	for _, way := range []bool{q.IDs != nil, q.Filter != nil, q.All} {
		if way {
			ways++
		}
	}
	switch {
	case ways != 1 || q.IDs != nil && len(q.IDs) == 0 || q.Filter != nil && len(q.Filter) == 0:
		return nil, refuse(http.StatusBadRequest, "name rows by ids, or choose them by a filter, or say all: one of the three")
	case q.IDs != nil && (q.Limit != 0 || q.After != 0):
		return nil, refuse(http.StatusBadRequest, "limit and after go with a filter or all")
	case q.Limit < 0 || q.Limit > rowsPage || q.After < 0:
		return nil, refuse(http.StatusBadRequest, "limit must be a number from 1 to %d, and after the seq of a row", rowsPage)
	}
	work := &rowwork.Work{Verb: verb, By: caller(q.By, remote), Why: q.Why, DryRun: q.DryRun, Limit: q.Limit}
	if work.Limit == 0 {
		work.Limit = rowsPage
	}
	if q.IDs == nil {
		fields := map[string]string{}
		for name, value := range q.Filter {
			fields[name] = string(value)
		}
		f, err := rowwork.ParseFilter(fields)
		switch {
		case err != nil:
			return nil, refuse(http.StatusBadRequest, "filter: %v", err)
		case f.State != "" && !slices.Contains(verb.From(), f.State):
			return nil, refuse(http.StatusBadRequest, "filter: no row that is %s can be %s", f.State, verb.Past())
		}
		f.After = q.After
		work.Filter = &f
	}
	edit, err := q.edit(verb)
	work.Edit = edit
	return work, err
}

// edit is what the one row is to have.
func (q *rowsRequest) edit(verb rowwork.Verb) (core.Edit, error) {
	var e core.Edit
	if q.Payload != nil {
		e.Payload = []byte(*q.Payload)
	}
	if q.PayloadBase64 != nil {
		e.Payload = q.PayloadBase64
	}
	if len(q.Headers) > 0 && !bytes.Equal(q.Headers, []byte("null")) {
		headers := string(q.Headers)
		e.Headers = &headers
	}
	switch {
	case len(q.Headers) > maxHeaders:
		return e, refuse(http.StatusRequestEntityTooLarge, "headers has more than %d bytes", maxHeaders)
	case q.Payload != nil && q.PayloadBase64 != nil:
		return e, refuse(http.StatusBadRequest, "a body has payload or payload_base64, and not both")
	case !e.Empty() && (verb != rowwork.Retry || len(q.IDs) != 1):
		return e, refuse(http.StatusBadRequest, "payload and headers are for the retry of one id")
	}
	return e, nil
}

// caller names who asks, for a row's history: the name that it gives itself, and where it asks from, which it cannot choose.
func caller(name, remote string) string {
	if name == "" {
		name = "unknown"
	}
	if len(name) > maxByName {
		name = strings.ToValidUTF8(name[:maxByName], "")
	}
	if host, _, err := net.SplitHostPort(remote); err == nil {
		remote = host
	}
	return core.CleanText("api:" + name + "@" + remote)
}

// rowsAnswer says what became of rows.
type rowsAnswer struct {
	Connector string            `json:"connector"`
	DryRun    bool              `json:"dry_run"`
	Changed   int               `json:"changed"` // or would be
	Failed    int               `json:"failed"`
	Rows      []rowwork.Changed `json:"rows"`
	Error     string            `json:"error,omitempty"` // why not all were tried
	More      bool              `json:"more"`            // there are more rows: call again with
	After     int64             `json:"after"`           // this
	Say       string            `json:"say,omitempty"`
}

// do does the work on the rows with these ids, or on those of its filter.
func (s *server) do(ctx context.Context, work *rowwork.Work, ids []text) (rowsAnswer, error) {
	answer := rowsAnswer{Connector: work.Connector, DryRun: work.DryRun, Rows: []rowwork.Changed{}}
	began := time.Now()
	report := func(r rowwork.Result) bool {
		c := rowwork.Changed{Connector: work.Connector, Seq: r.Row.Seq, ID: r.Row.ID, DryRun: work.DryRun, Warning: r.Warning}
		if r.Err == nil {
			c.Done = !work.DryRun
		} else {
			c.Error = s.public(work, r)
		}
		answer.Rows = append(answer.Rows, c)
		return time.Since(began) < rowsBudget
	}
	missing := 0
	seen := map[text]bool{}
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		row, _, err := work.Rows.Show(ctx, string(id))
		switch {
		case errors.Is(err, core.ErrNoRow):
			missing++
			report(rowwork.Result{Row: core.RowInfo{ID: string(id)}, Err: err})
		case err != nil:
			return answer, fmt.Errorf("look for a row: %w", err)
		default:
			row.Payload = nil // of many rows that would be much
			work.Picked = append(work.Picked, row)
		}
	}
	summary, err := work.Do(ctx, report)
	answer.Changed, answer.Failed, answer.More, answer.After = summary.Changed, summary.Failed+missing, summary.More, summary.After
	switch {
	case !summary.More:
	case work.Filter != nil:
		answer.Say = fmt.Sprintf("there are more rows: call again with \"after\": %d", summary.After)
	default:
		answer.Say = "the time is over: call again with the ids that have no answer"
	}
	if summary.Changed > 0 && !work.DryRun {
		s.log.Info("rows were changed over HTTP", "connector", work.Connector, "verb", string(work.Verb), "rows", summary.Changed, "by", work.By, "why", core.CleanText(work.Why))
	}
	return answer, err
}

// public is an error as anybody may read it: one of the database tells of hosts and users, and goes to the log.
func (s *server) public(work *rowwork.Work, r rowwork.Result) string {
	var state *core.StateError
	var content *core.ContentError
	var done *rowwork.DoneError
	switch {
	case errors.As(r.Err, &done):
		return core.CleanText(done.Error())
	case errors.Is(r.Err, rowwork.ErrReceiptsUnread):
		s.log.Warn("reading a row's receipts failed", "connector", work.Connector, "seq", r.Row.Seq, "error", r.Err)
		return "it is left as it is, for " + rowwork.ErrReceiptsUnread.Error()
	case errors.Is(r.Err, core.ErrLocked):
		return core.ErrLocked.Error()
	case errors.Is(r.Err, core.ErrNoRow):
		return "no row has this id"
	case errors.As(r.Err, &state):
		return core.CleanText(state.Error())
	case errors.As(r.Err, &content):
		return core.CleanText(content.Error())
	default:
		s.log.Warn("changing a row over HTTP failed", "connector", work.Connector, "seq", r.Row.Seq, "error", r.Err)
		return "it could not be changed, or it is not known whether it was: look at it again"
	}
}
