package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/connectd/connectd/core/layout"
)

// texts writes the statements: {name} stands for a table or a column, quoted, or for an expression. Every parameter is
// cast, so that it has a type in each of the client's query modes.
type texts struct {
	names *strings.Replacer
	// fetches are all forms of the fetch, by what they leave out and whether they stop at a number of bytes.
	fetches [2][2]string
}

func (s *schema) texts() texts {
	c := &s.cols
	pairs := []string{"{table}", s.table.quoted(), "{tbl}", literal(s.table.name), "{part}", s.partition(), "{position}", s.position(), "{now}", "clock_timestamp()", "{durable}", durable,
		"{deliveries known}", known(quote(c.Deliveries), layout.MaxCount), "{crashes known}", known(quote(c.Crashes), layout.MaxCrashes),
		"{failing known}", strings.ReplaceAll("CASE WHEN {} BETWEEN 'epoch' AND clock_timestamp() THEN {} END", "{}", quote(c.FailingSince))}
	for _, name := range layout.RelayTables() {
		pairs = append(pairs, "{"+name+"}", s.beside(strings.TrimPrefix(name, "connectd_")))
	}
	for each, name := range c.All() {
		column := "NULL"
		if name != "" {
			column = quote(name)
		}
		pairs = append(pairs, "{"+each+"}", column)
	}
	created := "{created}"
	switch s.found[c.Created].kind {
	case "":
		created = "NULL::timestamptz"
	case "timestamp without time zone":
		created = "({created} AT TIME ZONE 'UTC')"
	}
	created = "CASE WHEN " + created + " BETWEEN '0001-01-02' AND '9999-12-30' THEN " + created + " END"
	created = strings.ReplaceAll(created, "{created}", quote(c.Created))
	payload, size := quote(c.Payload)+"::text", "pg_column_size("+quote(c.Payload)+")"
	switch s.found[c.Payload].kind {
	case "bytea":
		payload, size = quote(c.Payload), "octet_length("+quote(c.Payload)+")"
	case "text", "character varying":
		size = "octet_length(" + quote(c.Payload) + ")"
	case "jsonb":
		size += " / 8" // its text is never shorter than that
	}
	extra := ""
	for _, h := range s.extra {
		extra += ", " + quote(h.Column) + "::text"
	}
	pairs = append(pairs, "{created at}", created, "{bytes}", payload, "{size}", size, "{extra}", extra)
	t := texts{names: strings.NewReplacer(pairs...)}
	for i, leaveOut := range []bool{false, true} {
		for j, cut := range []bool{false, true} {
			t.fetches[i][j] = t.fetch(s.fetched(), leaveOut, cut)
		}
	}
	return t
}

func (t texts) fill(text string) string { return t.names.Replace(text) }

// known is a counter as a scanner takes it: 0 where an application wrote what the relay never does.
func known(column string, most int) string {
	return fmt.Sprintf(`CASE WHEN %[1]s BETWEEN 0 AND %[2]d THEN %[1]s ELSE 0 END`, column, most)
}

// fetched are the table's columns that a fetch reads, quoted.
func (s *schema) fetched() string {
	c := &s.cols
	names := []string{c.Order, c.ID, c.Key, c.Route, c.Type, c.Payload, c.Headers, c.Created, c.Deliveries, c.Attempts, c.Crashes, c.AvailableAt, c.FailingSince}
	for _, h := range s.extra {
		names = append(names, h.Column)
	}
	var list []string
	for _, name := range names {
		if q := quote(name); name != "" && !slices.Contains(list, q) {
			list = append(list, q)
		}
	}
	return strings.Join(list, ", ")
}

// rowColumns are read for every row, in the order in which a scanner takes them. The wait and the time since the first
// failure are microseconds. An application that delays a row may have written any time into available_at: no value of
// it, nor of the time of insertion, may fail the page.
const rowColumns = `{order}::bigint, {id}::text, {key}::text, {route}::text, {type}::text, {bytes}, {headers}::text, {created at},
	{deliveries}, {attempts}, {crashes},
	CASE WHEN {available_at} IS NULL THEN 0 ELSE (extract(epoch FROM greatest(least({available_at}, {now} + interval '100 years'), {now} - interval '100 years') - {now}) * 1000000)::bigint END,
	CASE WHEN {failing_since} IS NULL THEN 0 ELSE coalesce((extract(epoch FROM {now} - {failing known}) * 1000000)::bigint, 0) END{extra}`

// fetch is one statement, so one snapshot, of which the first two columns tell, and the third what operators had changed; the fourth is the request's place; without
// rows it gives one of NULLs. It reads one row more than a page may have, to know whether there are more. Its arguments are
// lists of partitions and of afters, up to, and a list of limits; with leaveOut the known seqs and the keys that must wait;
// with cut a list of the numbers of bytes that end the pages. Rows are cut by the size of payloads alone, which is no more
// than the client counts, and one row late, so that the client sees that there are more.
//
// What is left out is looked up in a hash table, made once, and neither joined, which would need the order to be made again,
// nor compared one by one. A partition's pending rows are an index scan that ends at the limit, one after the other.
func (t texts) fetch(columns string, leaveOut, cut bool) string {
	lists, names, where, before, most := "$1::integer[], $2::bigint[], $4::bigint[]", `"connectd part", "connectd after", "connectd most"`, "", "", ""
	next := 5
	if leaveOut {
		where = ` AND {order} NOT IN (SELECT unnest($5::bigint[])) AND ({key} IS NULL OR {key}::text COLLATE "C" NOT IN (SELECT unnest($6::text[])))`
		next = 7
	}
	if cut {
		lists += fmt.Sprintf(", $%d::bigint[]", next)
		names += `, "connectd bytes"`
		before = `, sum({size}) OVER (ORDER BY {position} ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS "connectd before"`
		most = ` WHERE coalesce("connectd before", 0) < "connectd bytes"`
	}
	page := `SELECT ` + columns + before + ` FROM {table} WHERE {part} = "connectd part" AND {state} = 'pending' AND {position} > "connectd after" AND {position} <= $3::bigint` +
		where + ` ORDER BY {position} LIMIT "connectd most" + 1`
	if cut {
		page = `SELECT * FROM (` + page + `) c` + most
	}
	return t.fill(`SELECT "connectd oldest", "connectd next", "connectd changes", "connectd request", ` + rowColumns + ` FROM (SELECT pg_snapshot_xmin(s)::text::bigint AS "connectd oldest",
		pg_snapshot_xmax(s)::text::bigint AS "connectd next",
		coalesce((SELECT changes FROM {connectd_outbox} WHERE tbl = {tbl}), 0) AS "connectd changes" FROM pg_current_snapshot() s OFFSET 0) h LEFT JOIN
		(unnest(` + lists + `) WITH ORDINALITY "connectd q" (` + names + `, "connectd request") CROSS JOIN LATERAL (` + page + `) o) ON true`)
}
