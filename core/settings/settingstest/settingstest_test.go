package settingstest_test

import (
	"testing"

	"github.com/connectd/connectd/core/settings"
	"github.com/connectd/connectd/core/settings/settingstest"
)

// Login is embedded below.
type Login struct {
	User string          `json:"user" required:"true"`
	Pass settings.Secret `json:"pass"`
}

type group struct {
	File string `json:"file" default:"a"`
}

// TestTable has a row for every kind of setting.
func TestTable(t *testing.T) {
	settingstest.Table(t, `# Settings

| setting | default | meaning |
|---|---|---|
| `+"`user`"+` | required | |
| `+"`pass`"+` | none | |
| `+"`wait`"+` | `+"`5s`"+` | |
| `+"`tls`"+` | absent | |
| `+"`tls.file`"+` | `+"`a`"+` | |
| `+"`list`"+` | none | |
| `+"`list[].file`"+` | `+"`a`"+` | |

| `+"`other`"+` | table | |
`, struct {
		Login
		Wait   settings.Duration `json:"wait" default:"5s"`
		TLS    *group            `json:"tls"`
		List   []group           `json:"list"`
		Hidden int               `json:"-"`
	}{}, "tls")
}
