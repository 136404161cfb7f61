//go:build linux

package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/plugins"
	"github.com/connectd/connectd/plugins/host"
)

// killerNotes is the file in which the sinks of a pair note what some rows do to them.
const killerNotes = "killed.jsonl"

// killerSink is a sink of a third party, not a good one: a request for each record, one after the other, and some records
// end it or hang it.
type killerSink struct {
	client http.Client
	config struct {
		URL  string `json:"url"`
		Note string `json:"note"` // where it notes that
	}
}

// killing is a line of the notes.
type killing struct {
	At   time.Time `json:"at"`
	ID   string    `json:"id"`
	Type string    `json:"type"`
}

// installKiller makes plugins/connectd-sink-killer in the directory, which is this test binary.
func installKiller(t *testing.T, dir string) (pluginDir string) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	pluginDir = filepath.Join(dir, "plugins")
	must(t, os.MkdirAll(pluginDir, 0o755))
	if program := filepath.Join(pluginDir, host.Prefix+"killer"); os.Link(self, program) != nil { // another file system
		text, err := os.ReadFile(self)
		must(t, err)
		must(t, os.WriteFile(program, text, 0o755))
	}
	return pluginDir
}

// isKiller says that this process is the plugin.
func isKiller() bool { return filepath.Base(os.Args[0]) == host.Prefix+"killer" }

func (k *killerSink) Describe(context.Context) (core.Description, error) {
	return core.Description{Name: "killer", Version: "0.1", Schema: []byte(`{"type":"object"}`)}, nil
}

func (k *killerSink) Configure(_ context.Context, settings []byte) ([]core.Diagnostic, error) {
	k.client.Timeout = requestTimeout
	return nil, json.Unmarshal(settings, &k.config)
}

func (k *killerSink) Open(context.Context) error   { return nil }
func (k *killerSink) Health(context.Context) error { return nil }
func (k *killerSink) Close(context.Context) error  { return nil }

func (k *killerSink) Deliver(ctx context.Context, batch []core.Record) ([]core.Outcome, error) {
	outcomes := make([]core.Outcome, len(batch))
	stopped := map[string]bool{} // keys with a record that was not delivered
	for i := range batch {
		r := &batch[i]
		if r.Keyed && stopped[r.Key] || ctx.Err() != nil {
			outcomes[i].Kind = core.NotAttempted
			continue
		}
		switch r.Type {
		case crashing:
			k.note(r)
			os.Exit(9)
		case hanging:
			k.note(r)
			time.Sleep(time.Hour)
		}
		if outcomes[i] = k.send(ctx, r); outcomes[i].Kind != core.Delivered && r.Keyed {
			stopped[r.Key] = true
		}
	}
	return outcomes, nil
}

// note must be on the disk before the process ends.
func (k *killerSink) note(r *core.Record) {
	line, err := json.Marshal(killing{time.Now(), r.ID, r.Type})
	if err != nil {
		panic(err)
	}
	f, err := os.OpenFile(k.config.Note, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

// send says what the webhook sink says, as far as the receiver reads it.
func (k *killerSink) send(ctx context.Context, r *core.Record) core.Outcome {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, k.config.URL, bytes.NewReader(r.Payload))
	if err != nil {
		return core.Outcome{Kind: core.Permanent, Code: "request", Message: err.Error()}
	}
	request.Header.Set("Webhook-Id", r.ID)
	request.Header.Set("Connectd-Type", r.Type)
	request.Header.Set("Connectd-Delivery", strconv.Itoa(r.Deliveries))
	request.Header.Set("Connectd-Epoch", strconv.FormatInt(r.Epoch, 10))
	if r.PossibleDuplicate() {
		request.Header.Set("Connectd-Possible-Duplicate", "true")
	}
	request.GetBody = nil // else the client sends it again by itself
	answer, err := k.client.Do(request)
	if err != nil {
		return core.Outcome{Kind: core.Retryable, Unknown: true, Code: "request", Message: err.Error()}
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode/100 == 2:
		return core.Outcome{Kind: core.Delivered}
	case answer.StatusCode == http.StatusUnprocessableEntity:
		return core.Outcome{Kind: core.Permanent, Code: "refused", Message: answer.Status}
	default:
		return core.Outcome{Kind: core.Throttled, Code: "status", Message: answer.Status}
	}
}

// killings reads the notes: what rows did to the sinks. A row that hangs one does so until its call has run out.
func killings(dir string, start time.Time) (list []accident, err error) {
	f, err := os.Open(filepath.Join(dir, killerNotes))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var k killing
		if err := json.Unmarshal(lines.Bytes(), &k); err != nil {
			return nil, fmt.Errorf("what rows did to sinks, line %d: %w", len(list)+1, err)
		}
		a := accident{what: rowCrash, at: k.At.Sub(start), began: k.At, ended: k.At}
		if k.Type == hanging {
			a.what, a.lasts = rowHang, callTimeout
			a.ended = k.At.Add(callTimeout)
		}
		list = append(list, a)
	}
	return list, lines.Err()
}

// serveKiller is the plugin's main.
func serveKiller() { plugins.Serve(&killerSink{}) }
