package rowwork

import (
	"encoding/base64"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

// View is a row in JSON.
type View struct {
	Connector   string     `json:"connector"`
	Seq         int64      `json:"seq"`
	ID          string     `json:"id"`
	Key         *string    `json:"key"`
	Route       string     `json:"route,omitempty"`
	Type        string     `json:"type,omitempty"`
	State       core.State `json:"state"`
	Sending     bool       `json:"sending,omitempty"`
	Partition   int        `json:"partition"`
	Attempts    int        `json:"attempts"`
	Deliveries  int        `json:"deliveries"`
	Crashes     int        `json:"crashes,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	CreatedAt   string     `json:"created_at,omitempty"`
	AvailableAt string     `json:"available_at,omitempty"`
	PublishedAt string     `json:"published_at,omitempty"`
	Size        int64      `json:"size"`
	Content
	History   []AttemptView  `json:"history,omitempty"`
	Revisions []RevisionView `json:"revisions,omitempty"`
	// RevisionsError says that they could not be read: a user may lack the right to.
	RevisionsError string        `json:"revisions_error,omitempty"`
	Receipts       []ReceiptView `json:"receipts,omitempty"`
	ReceiptsError  string        `json:"receipts_error,omitempty"` // why they could not be read
}

// Content is a row's payload and headers in JSON.
type Content struct {
	Payload       *string         `json:"payload,omitempty"`        // one that is UTF-8
	PayloadBase64 *string         `json:"payload_base64,omitempty"` // any other
	Headers       json.RawMessage `json:"headers,omitempty"`
	HeadersText   string          `json:"headers_text,omitempty"` // a headers column that is no JSON
}

// AttemptView is one entry of a row's history in JSON.
type AttemptView struct {
	At         string  `json:"at"`
	Deliveries int     `json:"deliveries"`
	Code       string  `json:"code"`
	Message    string  `json:"message,omitempty"`
	By         string  `json:"by,omitempty"`
	Seconds    float64 `json:"seconds,omitempty"`
}

// ReceiptView is what a consumer reported, in JSON.
type ReceiptView struct {
	Consumer  string `json:"consumer"`
	Status    string `json:"status"`
	ResultRef string `json:"result_ref,omitempty"`
	At        string `json:"at,omitempty"`
}

// ViewReceipts writes receipts of one row.
func ViewReceipts(list []core.Receipt) (views []ReceiptView) {
	for _, r := range list {
		views = append(views, ReceiptView{r.Consumer, string(r.Status), r.ResultRef, Stamp(r.At)})
	}
	return views
}

// RevisionView is what a row was until an edit, in JSON.
type RevisionView struct {
	Until string `json:"until"`
	By    string `json:"by"` // who edited it, and why
	Why   string `json:"why,omitempty"`
	Content
}

// ViewRow writes a row for JSON, without what only Show returns.
func ViewRow(connector string, r core.RowInfo) View {
	v := View{
		Connector: connector, Seq: r.Seq, ID: r.ID, Route: r.Route, Type: r.Type, State: r.State, Sending: r.Sending,
		Partition: r.Part, Attempts: r.Attempts, Deliveries: r.Deliveries, Crashes: r.Crashes, LastError: r.LastError,
		CreatedAt: Stamp(r.CreatedAt), AvailableAt: Stamp(r.AvailableAt), PublishedAt: Stamp(r.PublishedAt), Size: r.Size,
	}
	if r.Keyed {
		v.Key = &r.Key
	}
	return v
}

// ViewWhole writes all that is known of a row.
func ViewWhole(connector string, r core.RowInfo, history []core.Attempt, revisions []core.Revision) View {
	v := ViewRow(connector, r)
	v.Content = viewContent(r.Payload, r.Headers)
	for _, a := range history {
		v.History = append(v.History, AttemptView{Stamp(a.At), a.Deliveries, a.Code, a.Message, a.By, a.Duration.Seconds()})
	}
	for _, old := range revisions {
		v.Revisions = append(v.Revisions, RevisionView{Stamp(old.At), old.By, old.Why, viewContent(old.Payload, old.Headers)})
	}
	return v
}

func viewContent(payload []byte, headers string) Content {
	var c Content
	if text := string(payload); utf8.ValidString(text) {
		c.Payload = &text
	} else {
		text = base64.StdEncoding.EncodeToString(payload)
		c.PayloadBase64 = &text
	}
	if json.Valid([]byte(headers)) {
		c.Headers = json.RawMessage(headers)
	} else {
		c.HeadersText = headers
	}
	return c
}

// Changed is what became of one row, in JSON.
type Changed struct {
	Connector string `json:"connector,omitempty"`
	Seq       int64  `json:"seq,omitempty"` // absent: no row has the id
	ID        string `json:"id"`
	Done      bool   `json:"done"`
	DryRun    bool   `json:"dry_run,omitempty"`
	Error     string `json:"error,omitempty"`
	Warning   string `json:"warning,omitempty"`
}

// Stamp writes a moment, UTC; "" for none.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// Sends is how often a row was or may have been sent. Its deliveries count refusals too, for they number the relay's
// writes to the row.
func Sends(r core.RowInfo) int { return max(r.Deliveries-r.Refused, 0) }
