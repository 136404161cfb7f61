package config

import (
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

var (
	connectorName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	pluginName    = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	digest        = regexp.MustCompile(`^[0-9A-Fa-f]{64}$`)
)

// columns are the keys of source.columns; true marks those that a table may lack.
var columns = map[string]bool{
	"id": false, "key": true, "route": true, "type": true, "payload": false, "headers": true, "order": false,
	"partition": false, "created": true, "state": false, "available_at": false, "attempts": false,
	"deliveries": false, "crashes": false, "last_error": false, "failing_since": false,
	"published_at": false,
}

// checker collects what is wrong with a connector whose single values are right.
type checker []core.Diagnostic

func (c *checker) wrong(bad bool, pointer, format string, args ...any) {
	if bad {
		*c = append(*c, core.Diagnostic{Pointer: pointer, Message: fmt.Sprintf(format, args...)})
	}
}

func check(c *Connector) []core.Diagnostic {
	var d checker
	d.wrong(!connectorName.MatchString(c.Name), "",
		"needs a name of 1 to 64 letters, digits, dots, dashes and underscores that begins with a letter or digit")
	d.source(&c.Source)
	d.wrong(!pluginName.MatchString(c.Sink.Plugin), "/sink/plugin",
		"must be a name of 1 to 64 lower-case letters, digits, dashes and underscores")
	d.wrong(c.Process.SHA256 != "" && !digest.MatchString(c.Process.SHA256), "/process/sha256",
		"must be a SHA-256 digest, 64 hexadecimal digits")
	for i, name := range c.Process.Env {
		d.wrong(!variableName.MatchString(name), fmt.Sprintf("/process/env/%d", i),
			"must be the name of an environment variable; its value cannot be set here")
	}
	d.wrong(c.Delivery.Ordering == "commit" && c.Source.Plugin != "postgres", "/delivery/ordering", "commit is for postgres")
	d.wrong(c.Delivery.OnDead == "block" && !c.Retention.Dead.Forever, "/retention/dead",
		"must be keep with delivery.on_dead: block, where later rows of a dead row's key wait for a person")
	d.audit(c)
	retry := c.Delivery.Retry // a maximum of 0 has a problem of its own
	d.wrong(retry.Max > 0 && retry.Initial > retry.Max, "/delivery/retry/initial", "must not be above delivery.retry.max, %s", retry.Max)
	return d
}

func (d *checker) source(s *Source) {
	switch s.Plugin {
	case "sqlite":
		d.wrong(s.Path == "", "/source/path", "is required for sqlite")
		d.wrong(s.DSN.Reveal() != "", "/source/dsn", "is not for sqlite, which needs source.path")
	case "postgres", "mysql":
		d.wrong(s.DSN.Reveal() == "", "/source/dsn", "is required for %s", s.Plugin)
		d.wrong(s.Path != "", "/source/path", "is for sqlite; %s needs source.dsn", s.Plugin)
	}
	_, readable := s.tableParts()
	switch quote, server := nameQuotes[s.Plugin]; {
	case server:
		d.wrong(!readable, "/source/table", "must be the name of a table, or schema.table; a name that has a full stop is put in %c%[1]c", quote)
	default:
		d.wrong(!readable || strings.Contains(s.Table, "."), "/source/table", "must be the name of a table, without a full stop")
	}
	d.tls(s)
	d.columns(s)
	for _, header := range slices.Sorted(maps.Keys(s.HeaderColumns)) {
		at, column := "/source/header_columns/"+settings.Escape(header), s.HeaderColumns[header]
		d.wrong(header == "", at, "must have the name of a header before the colon")
		d.wrong(!plainName(column), at, "must be the name of a column, as the table has it")
	}
	d.wrong(s.Notify != "" && s.Plugin != "postgres", "/source/notify", "is for postgres")
	d.wrong(s.MaxTransaction != 0 && s.Plugin != "mysql", "/source/max_transaction", "is for mysql")
	d.wrong(s.Poll.Max > 0 && s.Poll.Min > s.Poll.Max, "/source/poll/min", "must not be above source.poll.max, %s", s.Poll.Max)
}

func (d *checker) audit(c *Connector) {
	e := c.Audit.Events
	if e == nil {
		return
	}
	_, readable := c.Source.parts(e.Table)
	d.wrong(!readable, "/audit/events/table", "must be the name of a table, as in source.table")
	d.wrong(!plainName(e.Key), "/audit/events/key", "must be the name of a column, as the table has it")
	d.wrong(e.Join != "" && !plainName(e.Join), "/audit/events/join", "must be the name of a column, as the outbox table has it")
	d.wrong(e.Command == "" && e.Join == "", "/audit/events", "must have command or join, which say what an event's command is")
	d.wrong(e.Command != "" && e.Join != "", "/audit/events/join", "must not be given beside command")
}

// tls makes the paths of the files absolute, and checks them. Certificates that are not looked at are for doctor to warn of.
func (d *checker) tls(s *Source) {
	if s.TLS == nil {
		return
	}
	switch s.Plugin {
	case "sqlite":
		d.wrong(true, "/source/tls", "is not for sqlite, which reads a file")
		return
	case "postgres":
		d.wrong(true, "/source/tls", "is for mysql; postgres has it in source.dsn: sslmode, sslrootcert, sslcert and sslkey")
		return
	}
	if dir, err := os.Getwd(); err == nil {
		s.TLS.Resolve(dir)
	}
	for _, diagnostic := range s.TLS.Check("/source/tls") {
		d.wrong(!diagnostic.Warning, diagnostic.Pointer, "%s", diagnostic.Message)
	}
}

func (d *checker) columns(s *Source) {
	used := map[string]string{}
	for _, column := range slices.Sorted(maps.Keys(s.Columns)) {
		at, name := "/source/columns/"+settings.Escape(column), s.Columns[column]
		optional, known := columns[column]
		switch {
		case !known:
			valid := slices.Collect(maps.Keys(columns))
			d.wrong(true, at, "is not a known column%s", settings.DidYouMean(column, valid))
			continue
		case column == "partition" && s.Plugin == "sqlite":
			d.wrong(true, at, "is not for sqlite, whose tables have one partition")
			continue
		case name == nil:
			d.wrong(!optional, at, "must be the name of a column; this one cannot be absent")
			continue
		case !plainName(*name):
			d.wrong(true, at, "must be the name of a column, as the table has it")
			continue
		}
		other := used[*name]
		used[*name] = column
		// An auto-incremented id gives the order too.
		d.wrong(other != "" && (other != "id" || column != "order"), at, "is the same column as source.columns.%s", other)
	}
}

func (d *Daemon) check() []core.Diagnostic {
	var all []core.Diagnostic
	if err := d.CheckListen(d.HTTP); err != nil {
		all = append(all, core.Diagnostic{Pointer: "/http", Message: err.Error()})
	}
	switch token, receipts := d.Token.Reveal(), d.ReceiptsToken.Reveal(); {
	case receipts == "":
	case token == "":
		all = append(all, core.Diagnostic{Pointer: "/receipts_token", Message: "needs daemon.token, without which everybody may do everything"})
	case token == receipts:
		all = append(all, core.Diagnostic{Pointer: "/receipts_token", Message: "is the same as daemon.token, and must be another one"})
	}
	return all
}

// CheckListen says why the daemon may not serve HTTP on addr, which is host:port or "off": without a token it serves
// the loopback interface only.
func (d Daemon) CheckListen(addr string) error {
	if addr == "off" {
		return nil
	}
	host, port, err := net.SplitHostPort(addr)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		return errListen
	}
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) && d.Token.Reveal() == "" {
		return errNoToken
	}
	return nil
}
