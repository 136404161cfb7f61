package mysql_test

import (
	"strings"
	"testing"

	"github.com/connectd/connectd/sources/sourcetest"

	driver "github.com/go-sql-driver/mysql"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/tlsfiles"
	"github.com/connectd/connectd/core/tlsfiles/tlstest"
	"github.com/connectd/connectd/scripts/services"
	"github.com/connectd/connectd/sources/mysql"
)

// Servers that demand TLS, with a certificate of an authority that nobody has heard of.
func TestTLS(t *testing.T) {
	authority, other := tlstest.New(t), tlstest.New(t)
	dir := t.TempDir()
	tlstest.Write(t, dir, authority.Issue(t, tlstest.Leaf{Name: "db.example"}))
	own := services.OwnTLS(t, dir, "mysql", "mariadb")
	for name, dsn := range map[string]string{"MySQL": own.MySQL(), "MariaDB": own.MariaDB()} {
		t.Run(name, func(t *testing.T) {
			cfg := mysql.Config{DSN: dsn, Table: "outbox"}
			reach := func(s *tlsfiles.Settings) core.Diagnosis {
				c := cfg
				c.TLS = s
				return mysql.Diagnose(t.Context(), c)
			}
			sourcetest.WantFinding(t, reach(nil), core.Problem, "server", "source.tls")
			sourcetest.WantFinding(t, reach(&tlsfiles.Settings{}), core.Problem, "server", "source.tls.ca_file")
			sourcetest.WantFinding(t, reach(&tlsfiles.Settings{CAFile: other.File, ServerName: "db.example"}), core.Problem, "server", "source.tls.ca_file")
			sourcetest.WantFinding(t, reach(&tlsfiles.Settings{CAFile: authority.File}), core.Problem, "server", "the server's certificate is for")
			sourcetest.WantFinding(t, reach(&tlsfiles.Settings{CAFile: dir + "/none.pem"}), core.Problem, "server", "none.pem")
			sourcetest.WantFinding(t, reach(&tlsfiles.Settings{InsecureSkipVerify: true}), core.Warning, "tls", "anybody on the way")
			cfg.TLS = &tlsfiles.Settings{CAFile: authority.File, ServerName: "db.example", MinVersion: "1.3"}
			initialise(t, cfg, mysql.InitOptions{Partitions: 1})
			src := source(t, cfg)
			if rows := pendingRows(t, src); len(rows) > 0 {
				t.Errorf("%d rows", len(rows))
			}
			if d := mysql.Diagnose(t.Context(), cfg); !d.Looked {
				t.Errorf("%+v", d.Findings)
			}
			cfg.DSN = dsnOf(t, cfg, func(c *driver.Config) { c.TLSConfig = "true" })
			if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "leave out one") {
				t.Errorf("validate: %v", err)
			}
		})
	}
}
