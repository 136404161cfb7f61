//go:build linux

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/connectd/connectd/core"
)

// nullSink confirms everything and keeps nothing. With the setting receipts it notes in that file when it was opened
// and when each record came, by the system's clock: "open NANOSECONDS" and "SEQ NANOSECONDS". With the setting refuse it
// refuses the records of that type for good.
type nullSink struct {
	config struct {
		Receipts string `json:"receipts"`
		Refuse   string `json:"refuse"`
	}
	receipts *os.File
}

func (s *nullSink) Describe(context.Context) (core.Description, error) {
	return core.Description{Name: "null", Version: "1", Schema: []byte(`{"type":"object"}`)}, nil
}

func (s *nullSink) Configure(_ context.Context, settings []byte) ([]core.Diagnostic, error) {
	return nil, json.Unmarshal(settings, &s.config)
}

func (s *nullSink) Open(context.Context) (err error) {
	if s.config.Receipts == "" {
		return nil
	}
	s.receipts, err = os.OpenFile(s.config.Receipts, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(s.receipts, "open %d\n", time.Now().UnixNano())
	}
	return err
}

func (s *nullSink) Deliver(_ context.Context, batch []core.Record) ([]core.Outcome, error) {
	now := time.Now().UnixNano()
	outcomes := make([]core.Outcome, len(batch))
	for i := range outcomes {
		outcomes[i].Kind = core.Delivered
		if s.config.Refuse != "" && batch[i].Type == s.config.Refuse {
			outcomes[i] = core.Outcome{Kind: core.Permanent, Code: "refused", Message: "a record of this type is refused"}
		}
	}
	if s.receipts == nil {
		return outcomes, nil
	}
	var lines []byte
	for i := range batch {
		lines = strconv.AppendInt(lines, batch[i].Seq, 10)
		lines = append(lines, ' ')
		lines = strconv.AppendInt(lines, now, 10)
		lines = append(lines, '\n')
	}
	if _, err := s.receipts.Write(lines); err != nil {
		return nil, err
	}
	return outcomes, nil
}

func (s *nullSink) Health(context.Context) error { return nil }
func (s *nullSink) Close(context.Context) error  { return nil }
