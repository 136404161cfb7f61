package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
)

// sharedTables reports connectors that read one outbox table: they would divide its partitions among them, and each
// sink would miss what the other got.
func sharedTables(all []Connector) Problems {
	var problems Problems
	readers := map[string]*Connector{}
	for i := range all {
		c := &all[i]
		table := c.Source.identity()
		if table == "" {
			continue
		}
		first, shared := readers[table]
		if !shared {
			readers[table] = c
			continue
		}
		for _, pair := range [][2]*Connector{{first, c}, {c, first}} {
			problems = append(problems, problemAt(pair[0].Pos, pointerTo("connectors", pair[0].Name, "source", "table"), fmt.Sprintf(
				"is the one that connector %q reads, at %s; an outbox table feeds one connector", pair[1].Name, pair[1].Pos)))
		}
	}
	return problems
}

// identity names the table among all tables of all databases, as well as the settings alone can tell; "" when they do
// not. It may contain secrets.
func (s *Source) identity() string {
	var database string
	switch {
	case s.Plugin == "sqlite" && s.Path != "":
		database = absolute(s.Path)
	case s.Plugin == "postgres" && s.DSN.Reveal() != "":
		database = postgresDatabase(s.DSN.Reveal())
	case s.Plugin == "mysql" && s.DSN.Reveal() != "":
		database = mysqlDatabase(s.DSN.Reveal())
	default:
		return ""
	}
	parts, _ := s.tableParts()
	if s.Plugin == "postgres" && len(parts) == 2 && parts[0] == "public" {
		parts = parts[1:]
	}
	table := strings.Join(parts, "\x00")
	if s.Plugin != "postgres" {
		// SQLite ignores case; whether MySQL does depends on the server's file system.
		table = strings.ToLower(table)
	}
	return strings.Join([]string{s.Plugin, database, table}, "\x00")
}

// absolute follows symbolic links as far as the file, or at least its directory, exists.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// postgresDatabase reads host, port and database from a URL or from keywords and values.
func postgresDatabase(dsn string) string {
	var host, port, database, user string
	if u, err := url.Parse(dsn); err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") {
		host, port, database, user = u.Hostname(), u.Port(), strings.TrimPrefix(u.Path, "/"), u.User.Username()
		if q := u.Query(); q.Has("host") {
			host = q.Get("host")
		}
	} else {
		for _, field := range strings.Fields(dsn) {
			name, v, _ := strings.Cut(field, "=")
			v = strings.Trim(v, "'")
			switch name {
			case "host":
				host = v
			case "port":
				port = v
			case "dbname":
				database = v
			case "user":
				user = v
			}
		}
	}
	if database == "" {
		database = user
	}
	return server(host, port, "5432") + "/" + database
}

// mysqlDatabase reads address and database from user:password@protocol(address)/database?options or a URL.
func mysqlDatabase(dsn string) string {
	dsn = strings.TrimPrefix(dsn, "mysql://")
	dsn, _, _ = strings.Cut(dsn, "?")
	slash := strings.LastIndexByte(dsn, '/')
	if slash < 0 {
		return dsn
	}
	database := dsn[slash+1:]
	address := dsn[strings.LastIndexByte(dsn[:slash], '@')+1 : slash]
	if _, inside, ok := strings.Cut(address, "("); ok {
		address = strings.TrimSuffix(inside, ")")
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, ""
	}
	return server(host, port, "3306") + "/" + database
}

// server makes the ways to write one server's address equal.
func server(host, port, defaultPort string) string {
	host = strings.ToLower(host)
	if ip := net.ParseIP(strings.Trim(host, "[]")); host == "" || ip != nil && ip.IsLoopback() {
		host = "localhost"
	}
	if port == "" {
		port = defaultPort
	}
	return host + ":" + port
}
