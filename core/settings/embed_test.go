package settings_test

import (
	"encoding/json"
	"testing"

	"github.com/connectd/connectd/core/settings"
)

// Login is embedded below.
type Login struct {
	User  string          `json:"user" required:"true"`
	Pass  settings.Secret `json:"pass"`
	Retry int             `json:"retry" default:"3" max:"9"`
}

// Account embeds it, and is embedded.
type Account struct {
	Login
	Note string `json:"note" default:"none"`
}

type withLogin struct {
	Mechanism string `json:"mechanism" default:"plain"`
	Account
}

// TestEmbeddedStructs has the fields of a struct in a struct in a struct on one level.
func TestEmbeddedStructs(t *testing.T) {
	var c withLogin
	if diags := settings.Decode([]byte(`{"user":"ada","pass":"hunter2"}`), &c); len(diags) > 0 {
		t.Fatal(diags)
	}
	if c.User != "ada" || c.Pass.Reveal() != "hunter2" || c.Retry != 3 || c.Mechanism != "plain" || c.Note != "none" {
		t.Errorf("%+v", c)
	}
	if found := settings.Secrets(c); len(found) != 1 || found[0] != "hunter2" {
		t.Error("the secret is not found")
	}
	diags := settings.Decode([]byte(`{"retry":10,"Login":{},"usr":"x"}`), &c)
	want := map[string]string{
		"/retry": "must be at most 9", "/Login": "is not a known setting; valid are mechanism, note, pass, retry, user",
		"/usr": `is not a known setting; did you mean "user"?`, "/user": "is required",
	}
	for _, d := range diags {
		if want[d.Pointer] != d.Message {
			t.Errorf("%+v, want %q", d, want[d.Pointer])
		}
		delete(want, d.Pointer)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	var schema struct {
		Properties map[string]any
		Required   []string
	}
	if err := json.Unmarshal(settings.Schema(c), &schema); err != nil {
		t.Fatal(err)
	}
	if len(schema.Properties) != 5 || schema.Properties["user"] == nil || len(schema.Required) != 1 || schema.Required[0] != "user" {
		t.Errorf("%+v", schema)
	}
}

// TestEmbeddedGroup gives an absent group, which embeds another, the defaults of both.
func TestEmbeddedGroup(t *testing.T) {
	var c struct {
		Group Account `json:"group"`
	}
	if diags := settings.Decode([]byte(`{}`), &c); len(diags) > 0 || c.Group.Retry != 3 || c.Group.Note != "none" {
		t.Errorf("%+v, %v", c, diags)
	}
}

func TestNamesThatMeet(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("two settings of one name")
		}
	}()
	settings.Schema(struct {
		Login
		Name string `json:"user"`
	}{})
}
