package mysql

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
)

// dialTimeout is how long to wait for a connection unless the DSN says otherwise.
const dialTimeout = 10 * time.Second

var errDSN = errors.New("dsn is not of the form user:password@tcp(host:port)/database?options or mysql://user:password@host:port/database?options")

// optionName is what an option, or a variable of the session, can be called.
var optionName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// parseDSN reads the DSN and pins what the source relies on. No error shows any part of it but the
// name of an option that the driver knows.
func parseDSN(dsn string) (*driver.Config, error) {
	if rest, is := strings.CutPrefix(dsn, "mysql://"); is {
		var err error
		if dsn, err = fromURL("//" + rest); err != nil {
			return nil, err
		}
	}
	slash := strings.LastIndexByte(dsn, '/')
	if slash < 0 {
		return nil, errDSN
	}
	_, options, _ := strings.Cut(dsn[slash:], "?")
	interpolate := true
	for option := range strings.SplitSeq(options, "&") {
		name, _, _ := strings.Cut(option, "=")
		if option != "" && !optionName.MatchString(name) {
			return nil, errDSN
		}
		if _, err := driver.ParseDSN("/?" + option); err != nil {
			if c, err := driver.ParseDSN("/?" + name + "=x"); err == nil && c.Params[name] != "" {
				return nil, errDSN
			}
			return nil, fmt.Errorf("dsn: option %q has a value that cannot be used", name)
		}
		interpolate = interpolate && name != "interpolateParams"
	}
	c, err := driver.ParseDSN(dsn)
	if err != nil {
		return nil, errDSN
	}
	if c.Net != "tcp" && c.Net != "unix" {
		return nil, errDSN
	}
	if c.DBName == "" {
		return nil, errors.New("dsn names no database")
	}
	// One round trip for a statement instead of three, unless the DSN chooses.
	c.InterpolateParams = c.InterpolateParams || interpolate
	c.ClientFoundRows = true // a row that already has the value written is found all the same
	c.ParseTime, c.Loc = false, time.UTC
	c.MultiStatements, c.AllowAllFiles, c.ColumnsWithAlias = false, false, false
	c.RejectReadOnly = false // conn does it, and says why
	c.Logger = &driver.NopLogger{}
	if c.Timeout == 0 {
		c.Timeout = dialTimeout
	}
	if err := c.Apply(driver.Charset("utf8mb4", "utf8mb4_bin")); err != nil {
		return nil, errDSN
	}
	return c, nil
}

// fromURL writes a URL as the driver wants it.
func fromURL(text string) (string, error) {
	u, err := url.Parse(text)
	// A password with a special character cuts a URL short, and the rest of it is somewhere else.
	if err != nil || u.Hostname() == "" || strings.ContainsAny(text[len("//")+strings.IndexAny(text[len("//"):]+"/", "/?#"):], "@#") {
		return "", errDSN
	}
	c := driver.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr = "tcp", net.JoinHostPort(u.Hostname(), "3306")
	if port := u.Port(); port != "" {
		c.Addr = net.JoinHostPort(u.Hostname(), port)
	}
	c.DBName = strings.TrimPrefix(u.Path, "/")
	dsn := c.FormatDSN()
	if u.RawQuery != "" { // the driver takes the last slash for the one before the database
		dsn += "?" + strings.ReplaceAll(u.RawQuery, "/", "%2F")
	}
	return dsn, nil
}
