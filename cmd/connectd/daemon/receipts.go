package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

const (
	maxReceiptsBody = 4 << 20 // bytes: 4 KiB for each of the most receipts
	receiptsTimeout = 20 * time.Second
	receiptsPage    = 1000 // receipts listed at most
)

// bookkeeper is where a connector's receipts go, and where its rows are.
type bookkeeper struct {
	connector string
	books     core.Books // nil while its source is not open
	rows      core.Operator
	received  func([]core.ReceiptResult)
}

// receiptJSON is a receipt as a consumer gives it.
type receiptJSON struct {
	Command   string `json:"command_id"`
	Consumer  string `json:"consumer"`
	Status    string `json:"status"`
	ResultRef string `json:"result_ref,omitempty"`
}

func (j receiptJSON) receipt() core.Receipt {
	return core.Receipt{Command: j.Command, Consumer: j.Consumer, Status: core.ReceiptStatus(j.Status), ResultRef: j.ResultRef}
}

// storedJSON is a receipt as it is stored.
type storedJSON struct {
	receiptJSON
	At  *time.Time `json:"at,omitempty"`
	Row string     `json:"row,omitempty"`
}

func asJSON(r core.Receipt) storedJSON {
	j := storedJSON{receiptJSON: receiptJSON{r.Command, r.Consumer, string(r.Status), r.ResultRef}, Row: string(r.Row)}
	if !r.At.IsZero() {
		j.At = &r.At
	}
	return j
}

// receiptsRequest is the body of a POST: a receipt, or several.
type receiptsRequest struct {
	Connector string `json:"connector"`
	receiptJSON
	Receipts []receiptJSON `json:"receipts" max:"1000"` // core.MaxReceipts
}

type receiptAnswer struct {
	Answer  string     `json:"answer"`
	Why     string     `json:"why,omitempty"`
	Receipt storedJSON `json:"receipt"`
}

// httpError is why a request is refused, with its status.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &httpError{status, fmt.Sprintf(format, args...)}
}

// postReceipts stores receipts and answers for each. That one was refused or is of no known row is said in its answer;
// the others are stored.
func (s *server) postReceipts(w http.ResponseWriter, r *http.Request) {
	request, err := readReceipts(r)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	keeper, err := s.keeper(request.Connector)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	list := make([]core.Receipt, len(request.Receipts))
	for i, j := range request.Receipts {
		list[i] = j.receipt()
	}
	ctx, cancel := context.WithTimeout(r.Context(), receiptsTimeout)
	defer cancel()
	results, err := keeper.books.SaveReceipts(ctx, list)
	if err != nil {
		s.log.Warn("storing receipts failed", "connector", keeper.connector, "error", err)
		s.answer(w, nil, refuse(http.StatusServiceUnavailable, "connector %s: the receipts could not be stored, or it is not known whether they were: send them again", keeper.connector))
		return
	}
	keeper.received(results)
	answers := make([]receiptAnswer, len(results))
	for i, result := range results {
		answers[i] = receiptAnswer{Answer: string(result.Answer), Why: result.Why, Receipt: asJSON(result.Receipt)}
	}
	s.answer(w, map[string]any{"connector": keeper.connector, "receipts": answers}, nil)
}

// isJSON refuses other types. A browser cannot send that type to another site without being allowed to.
func isJSON(r *http.Request) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "the Content-Type must be application/json")
	}
	return nil
}

// limit is how many are asked for, 100 if it is not said.
func limit(q url.Values, most int) (int, error) {
	text := q.Get("limit")
	if text == "" {
		return 100, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, refuse(http.StatusBadRequest, "limit must be a number from 1 to %d", most)
	}
	return n, nil
}

// readReceipts reads a POST's body.
func readReceipts(r *http.Request) (*receiptsRequest, error) {
	var request receiptsRequest
	if err := readBody(r, &request); err != nil {
		return nil, err
	}
	if request.Receipts == nil {
		request.Receipts = []receiptJSON{request.receiptJSON}
	} else if request.receiptJSON != (receiptJSON{}) {
		return nil, refuse(http.StatusBadRequest, "a body has one receipt, or receipts, and not both")
	}
	return &request, nil
}

// getReceipts lists a connector's receipts: ?connector= &command= &limit= and, for the next page, &after= and
// &after_consumer=.
func (s *server) getReceipts(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f, err := receiptsQuery(q)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	keeper, err := s.keeper(q.Get("connector"))
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), receiptsTimeout)
	defer cancel()
	list, err := keeper.books.Receipts(ctx, f)
	if err != nil {
		s.log.Warn("reading receipts failed", "connector", keeper.connector, "error", err)
		s.answer(w, nil, refuse(http.StatusServiceUnavailable, "connector %s: the receipts could not be read", keeper.connector))
		return
	}
	receipts := make([]storedJSON, len(list))
	for i, one := range list {
		receipts[i] = asJSON(one)
	}
	s.answer(w, map[string]any{"connector": keeper.connector, "receipts": receipts, "more": len(list) == f.Limit}, nil)
}

func receiptsQuery(q url.Values) (core.ReceiptFilter, error) {
	f := core.ReceiptFilter{Command: q.Get("command"), After: core.ReceiptKey{Command: q.Get("after"), Consumer: q.Get("after_consumer")}}
	for _, text := range []string{f.Command, f.After.Command, f.After.Consumer} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return f, refuse(http.StatusBadRequest, "command, after and after_consumer must be text")
		}
	}
	var err error
	f.Limit, err = limit(q, receiptsPage)
	return f, err
}

// keeper finds a connector, which need not be named when there is one.
func (s *server) keeper(name string) (*bookkeeper, error) {
	all := s.books()
	if name == "" && len(all) != 1 {
		return nil, refuse(http.StatusBadRequest, "say which connector: there are %d", len(all))
	}
	for i := range all {
		switch {
		case name != "" && all[i].connector != name:
		case all[i].books == nil:
			return nil, refuse(http.StatusServiceUnavailable, "connector %s: its database is not open", all[i].connector)
		default:
			return &all[i], nil
		}
	}
	return nil, refuse(http.StatusNotFound, "there is no such connector")
}

// answer writes an answer or an error as JSON. Of an error only what refuse made is said, for any other may tell of
// hosts, users and files.
func (s *server) answer(w http.ResponseWriter, value any, err error) {
	w.Header().Set("Content-Type", "application/json")
	var refused *httpError
	if err != nil && !errors.As(err, &refused) {
		s.log.Warn("a request over HTTP failed", "error", err)
		err = refuse(http.StatusInternalServerError, "it failed: the daemon's log says why")
	}
	if errors.As(err, &refused) {
		value = map[string]string{"error": refused.text}
		w.WriteHeader(refused.status)
	}
	if err := json.NewEncoder(w).Encode(value); err != nil {
		s.log.Debug("writing an answer failed", "error", err)
	}
}
