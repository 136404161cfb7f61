package mysql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/connectd/connectd/sources/mysql"
)

func TestVersions(t *testing.T) {
	for version, want := range map[string]string{
		"8.0.13": "", "8.0.42-0ubuntu0.24.04.1": "", "8.4.5": "", "9.7.4-2": "", "8.0.28": "",
		"10.6.0-MariaDB": "", "10.11.19-MariaDB-0+deb12u1": "", "5.5.5-10.11.6-MariaDB-log": "", "11.8.1-MariaDB": "", "12.0.2-MariaDB": "",
		"5.7.44-log":            "MySQL 5.7.44, which is too old: 8.0.13",
		"8.0.12":                "MySQL 8.0.12, which is too old",
		"10.5.29-MariaDB":       "MariaDB 10.5.29, which is too old: 10.6.0",
		"5.5.5-10.4.34-MariaDB": "MariaDB 10.4.34, which is too old",
		"8.0.11-TiDB-v7.5.0":    "TiDB",
		"something":             "cannot be read",
	} {
		err := mysql.CheckVersion(version)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", version, err, want)
		}
	}
}

func TestDSN(t *testing.T) {
	c, err := mysql.ParseDSN("u:p@tcp(db:3306)/shop?parseTime=true&loc=Europe%2FLondon&clientFoundRows=false&multiStatements=true&charset=latin1&rejectReadOnly=true&allowAllFiles=true&tls=skip-verify&timeout=3s")
	must(t, err)
	if c.ParseTime || c.Loc != time.UTC || !c.ClientFoundRows || c.MultiStatements || c.AllowAllFiles || c.RejectReadOnly || !c.InterpolateParams || c.TLSConfig != "skip-verify" || c.Timeout != 3*time.Second {
		t.Errorf("%+v", c)
	}
	if text := c.FormatDSN(); !strings.Contains(text, "charset=utf8mb4&collation=utf8mb4_bin") {
		t.Errorf("the character set: %s", text)
	}
	if c, err = mysql.ParseDSN("u@/shop?interpolateParams=false"); err != nil || c.InterpolateParams || c.Timeout == 0 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, url := range []string{"mysql://u:p%40%2F%3A@db/shop?tls=false&readTimeout=1s", "mysql://u:p%40%2F%3A@db:3306/shop?loc=Europe/London"} {
		if c, err = mysql.ParseDSN(url); err != nil || c.User != "u" || c.Passwd != "p@/:" || c.Addr != "db:3306" || c.DBName != "shop" {
			t.Errorf("%s: %+v, %v", url, c, err)
		}
	}
}

func TestErrorsOfADSNShowNoSecret(t *testing.T) {
	for _, dsn := range []string{
		"u:s3cret", "u:s3cret@tcp(db", "u:s3cret@tcp(db:3306)/", "u:/s3cret%zz@tcp(db)", "u:s3cret@tcp(db)/shop?timeout=s3cret", "u:s3cret@tcp(db)/shop?tls=s3cret",
		"mysql://u:s3cret@/shop", "mysql://u:s3cret%zz@db/shop", "mysql://u:s3cret@db:port/shop", "mysql://u:s3cret@db/", "u:a/s3cret@db)/x?y=s3cret/", "",
		"mysql://u?s3cret@db/shop", "mysql://u:1/s3cret@db/shop", "mysql://u:1#s3cret@db/shop", "u:a@s3cret(db)/shop", "u:a@tcp(db)/shop?timeout=1s&s3cret%zz=1", "u:a@tcp(db)/shop?timeout=1s&s3cret=%zz",
	} {
		err := mysql.Config{DSN: dsn, Table: "outbox"}.Validate()
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
	if err := (mysql.Config{DSN: "u:s3cret@tcp(db)/shop?timeout=soon", Table: "outbox"}).Validate(); err == nil || !strings.Contains(err.Error(), `"timeout"`) {
		t.Errorf("an option's value: %v", err)
	}
}

func TestNames(t *testing.T) {
	for table, want := range map[string]string{
		"outbox": "", "shop.outbox": "", "`crm.outbox`": "", "shop.`my``table`": "", "Outbox": "", "my table": "", "a'b\"c;--": "",
		"crm.dbo.outbox": "3 parts", "": "empty", "shop.": "empty", ".outbox": "empty", "`outbox": "not closed", "`a`b": "behind the closing", "a\x00b": "cannot be a name",
		"trailing ": "cannot be a name", strings.Repeat("x", 65): "longer than 64", "connectd_lease": "cannot be an outbox table", "shop.Connectd_Outbox": "cannot be an outbox table", "😀": "cannot be a name",
	} {
		err := mysql.Config{DSN: "u@tcp(db)/shop", Table: table}.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", table, err, want)
		}
	}
	for want, c := range map[string]map[string]*string{
		"are both": columns("id", "x", "type", "X"), "longer than 64": columns("key", strings.Repeat("x", 65)),
	} {
		if err := (mysql.Config{DSN: "u@tcp(db)/shop", Table: "outbox", Columns: c}).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
