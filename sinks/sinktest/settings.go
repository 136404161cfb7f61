package sinktest

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/connectd/connectd/core"
)

func checkGoodSettings(c *trial) { c.configure() }

// checkBadSettings wants each mistake named by its place, and no secret shown.
func checkBadSettings(c *trial) {
	if len(c.BadSettings) == 0 {
		c.Skip("the harness has no BadSettings")
	}
	for _, bad := range c.BadSettings {
		diagnostics, err := c.Sink.Configure(c.within(c.patience), []byte(bad.Settings))
		if err != nil {
			c.Errorf("Configure(%s): an error instead of a diagnostic: %v", bad.Settings, err)
			continue
		}
		if !slices.ContainsFunc(diagnostics, func(d core.Diagnostic) bool { return !d.Warning && d.Pointer == bad.Pointer }) {
			c.Errorf("Configure(%s) does not point to %q: %+v", bad.Settings, bad.Pointer, diagnostics)
		}
		c.readable(diagnostics, append(slices.Clone(c.Secrets), bad.Secret))
	}
}

// readable checks that diagnostics say something, and nothing secret.
func (c *trial) readable(diagnostics []core.Diagnostic, secrets []string) {
	c.Helper()
	for _, d := range diagnostics {
		if d.Message == "" {
			c.Errorf("the diagnostic for %q says nothing", d.Pointer)
		}
		if d.Pointer != "" && !strings.HasPrefix(d.Pointer, "/") {
			c.Errorf("%q is no JSON pointer", d.Pointer)
		}
		for _, secret := range secrets {
			if secret != "" && strings.Contains(d.Pointer+" "+d.Message, secret) {
				c.Errorf("a diagnostic shows a secret: %s: %s", d.Pointer, d.Message)
			}
		}
	}
}

// checkUnknownSetting adds a setting nobody knows; ignoring it would hide every typing mistake.
func checkUnknownSetting(c *trial) {
	var settings map[string]json.RawMessage
	if err := json.Unmarshal(c.Settings, &settings); err != nil {
		c.Fatalf("the harness's Settings are not a JSON object: %v", err)
	}
	settings["no_such_setting"] = json.RawMessage(`1`)
	data, err := json.Marshal(settings)
	if err != nil {
		c.Fatal(err)
	}
	diagnostics, err := c.Sink.Configure(c.within(c.patience), data)
	if err != nil {
		c.Fatalf("Configure with an unknown setting: an error instead of a diagnostic: %v", err)
	}
	if !slices.ContainsFunc(diagnostics, func(d core.Diagnostic) bool { return !d.Warning && d.Pointer == "/no_such_setting" }) {
		c.Errorf("an unknown setting is not refused at its place: %+v", diagnostics)
	}
	c.readable(diagnostics, c.Secrets)
}

// checkNoObject gives the sink what is no JSON object.
func checkNoObject(c *trial) {
	for _, data := range []string{`[]`, `null`, `"text"`, `{`, ``, `{} {}`} {
		diagnostics, err := c.Sink.Configure(c.within(c.patience), []byte(data))
		if err == nil && !refused(diagnostics) {
			c.Errorf("Configure(%q) is content", data)
		}
	}
}

// checkCorrectedSettings configures after a refusal, which is what a person does.
func checkCorrectedSettings(c *trial) {
	if diagnostics, err := c.Sink.Configure(c.within(c.patience), []byte(`{"no_such_setting":1}`)); err != nil || !refused(diagnostics) {
		c.Fatalf("Configure with an unknown setting: %+v, %v", diagnostics, err)
	}
	c.open()
	c.deliverAll(c.records(1))
}

// checkOfflineSettings configures while the destination is away: checking settings is no matter of the network.
func checkOfflineSettings(c *trial) {
	if c.Outage == nil {
		c.Skip("the harness has no Outage")
	}
	c.describe()
	restore := c.Outage(c)
	defer restore()
	start := time.Now()
	diagnostics, err := c.Sink.Configure(c.within(c.patience), c.Settings)
	if err != nil || refused(diagnostics) {
		c.Errorf("Configure needs the destination: %+v, %v", diagnostics, err)
	}
	if took := time.Since(start); took > c.grace {
		c.Errorf("Configure took %v while the destination was away; it must not look at it", took)
	}
	if got := c.Received(c); len(got) > 0 {
		c.Errorf("Configure sent %d records", len(got))
	}
}
