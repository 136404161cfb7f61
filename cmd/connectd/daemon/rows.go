package daemon

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/cmd/connectd/rowwork"
	"github.com/connectd/connectd/core"
)

const (
	rowsPage    = 1000             // rows listed or changed at most in one call
	rowsTimeout = 20 * time.Second // for one call
)

// getRows lists a connector's rows: ?connector= &limit= &after= and what a filter has.
func (s *server) getRows(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f, err := rowsQuery(q)
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	keeper, err := s.keeper(q.Get("connector"))
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), rowsTimeout)
	defer cancel()
	list, err := keeper.rows.List(ctx, f)
	if err != nil {
		s.log.Warn("listing rows over HTTP failed", "connector", keeper.connector, "error", err)
		s.answer(w, nil, refuse(http.StatusServiceUnavailable, "connector %s: the rows could not be read", keeper.connector))
		return
	}
	answer := struct {
		Connector string         `json:"connector"`
		Rows      []rowwork.View `json:"rows"`
		More      bool           `json:"more"` // there may be more,
		After     int64          `json:"after"`
	}{Connector: keeper.connector, Rows: []rowwork.View{}, More: len(list) == f.Limit, After: max(f.After, 0)}
	for _, row := range list {
		answer.Rows = append(answer.Rows, rowwork.ViewRow(keeper.connector, row))
		answer.After = row.Seq
	}
	s.answer(w, answer, nil)
}

// rowsQuery reads the parameters of a list. One that is empty is as one that is not there.
func rowsQuery(q url.Values) (core.Filter, error) {
	fields := map[string]string{}
	for _, name := range rowwork.FilterNames() {
		if value := q.Get(name); value != "" {
			fields[name] = value
		}
	}
	f, err := rowwork.ParseFilter(fields)
	if err != nil {
		return f, refuse(http.StatusBadRequest, "%v", err)
	}
	if f.Limit, err = limit(q, rowsPage); err != nil {
		return f, err
	}
	f.After = math.MinInt64 // a number below 1 is a row too, though it is not sent
	if text := q.Get("after"); text != "" {
		if f.After, err = strconv.ParseInt(text, 10, 64); err != nil {
			return f, refuse(http.StatusBadRequest, "after must be the seq of a row")
		}
	}
	return f, nil
}

// getRow shows one row whole. Its id is a parameter, for it may have any character.
func (s *server) getRow(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	id := q.Get("id")
	if !q.Has("id") || !utf8.ValidString(id) {
		s.answer(w, nil, refuse(http.StatusBadRequest, "id must be the id of a row"))
		return
	}
	keeper, err := s.keeper(q.Get("connector"))
	if err != nil {
		s.answer(w, nil, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), rowsTimeout)
	defer cancel()
	row, history, err := keeper.rows.Show(ctx, id)
	switch {
	case errors.Is(err, core.ErrNoRow):
		s.answer(w, nil, refuse(http.StatusNotFound, "connector %s: no row has this id", keeper.connector))
		return
	case err != nil:
		s.log.Warn("showing a row over HTTP failed", "connector", keeper.connector, "error", err)
		s.answer(w, nil, refuse(http.StatusServiceUnavailable, "connector %s: the row could not be read", keeper.connector))
		return
	}
	revisions, err := keeper.rows.Revisions(ctx, id)
	view := rowwork.ViewWhole(keeper.connector, row, history, revisions)
	if err != nil {
		s.log.Warn("looking over HTTP for what a row was failed", "connector", keeper.connector, "error", err)
		view.RevisionsError = "they could not be read"
	}
	trace, err := keeper.rows.Trace(ctx, id)
	view.Receipts = rowwork.ViewReceipts(trace.Receipts)
	if err != nil {
		s.log.Warn("looking over HTTP for a row's receipts failed", "connector", keeper.connector, "error", err)
		view.ReceiptsError = "they could not be read"
	}
	s.answer(w, view, nil)
}
