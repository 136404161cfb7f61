package mysql

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core/layout"
)

// texts writes statements: {name} stands for the table, an index or a column; {keep} ends the assignments of an UPDATE of the
// table, and keeps a time of insertion that would change with the row.
type texts struct{ names *strings.Replacer }

func (s *schema) texts() texts {
	c := &s.cols
	pairs := []string{
		"{table}", s.table.quoted(), "{tbl}", literal(s.table.name), "{pending_index}", quote(pendingIndex), "{order_index}", quote(s.unique[strings.ToLower(c.Order)]),
		"{now}", "UTC_TIMESTAMP(6)", "{epoch}", "'" + epoch + "'",
		"{outbox}", s.own("outbox"), "{lease}", s.own("lease"), "{worker}", s.own("worker"),
		"{inflight}", s.own("inflight"), "{attempt}", s.own("attempt"), "{ledger}", s.own("ledger"),
		"{receipt}", s.own("receipt"), "{revision}", s.own("revision"), "{cleaned}", s.own("cleaned"),
		"{deliveries known}", known(quote(c.Deliveries), layout.MaxCount), "{crashes known}", known(quote(c.Crashes), layout.MaxCrashes),
	}
	for each, name := range c.All() {
		// A column that is not there reads as NULL.
		column, text, bytes := "NULL", "NULL", "NULL"
		if found, is := s.found[strings.ToLower(name)]; is {
			column, text, bytes = quote(found.name), found.text(), found.bytes()
		}
		pairs = append(pairs, "{"+each+"}", column, "{"+each+".text}", text, "{"+each+".bytes}", bytes)
	}
	keep := ""
	if created := s.found[strings.ToLower(c.Created)]; created.touched {
		keep = ", " + quote(created.name) + " = " + quote(created.name)
	}
	extra := ""
	for _, h := range s.extra {
		extra += ", " + s.found[strings.ToLower(h.Column)].text()
	}
	return texts{strings.NewReplacer(append(pairs, "{extra}", extra, "{keep}", keep)...)}
}

func (t texts) fill(text string) string { return t.names.Replace(text) }

// known is a counter as a scanner takes it: 0 where an application wrote what the relay never does.
func known(column string, most int) string {
	return fmt.Sprintf(`CASE WHEN %[1]s BETWEEN 0 AND %[2]d THEN %[1]s ELSE 0 END`, column, most)
}

// rowColumns are read for every row, in the order in which a scanner takes them. The wait and the time since the first
// failure are in microseconds; an application that delays a row may have written any time.
const rowColumns = `{order}, {id.text}, {key.text}, {route.text}, {type.text}, {payload.text}, {headers.text}, {created}, {deliveries}, {attempts}, {crashes},
	CASE WHEN {available_at} = {epoch} THEN 0 ELSE COALESCE(TIMESTAMPDIFF(MICROSECOND, {now}, {available_at}), 0) END,
	CASE WHEN {failing_since} = {epoch} THEN 0 ELSE COALESCE(TIMESTAMPDIFF(MICROSECOND, {failing_since}, {now}), 0) END{extra}`

// kept is a time as an UPDATE writes it back; NULL where it is none, or not after the epoch. An application's SQL mode may
// have let it write the 31st of February, which the server would not take again from us: it is computed anew.
func kept(column string) string {
	return fmt.Sprintf(`CASE WHEN %[1]s > {epoch} THEN {now} - INTERVAL TIMESTAMPDIFF(MICROSECOND, %[1]s, {now}) MICROSECOND END`, column)
}

// fetch reads one row more than the page may have, to know whether there are more; the first column is the place, the second the operators
// changes where the row was sent before. The numbers to leave out are hidden
// from the optimizer in a sum, or it would make a range of each pause between them and estimate every one.
func (t texts) fetch(place, part int, after int64, known []int64, exclude, limit int) string {
	var b strings.Builder
	b.WriteString(`SELECT ` + strconv.Itoa(place) + `, CASE WHEN {deliveries} = 0 THEN 0 ELSE COALESCE((SELECT changes FROM {outbox} WHERE tbl = {tbl}), 0) END, ` + rowColumns + ` FROM {table} FORCE INDEX ({pending_index}) WHERE {state} = 'pending' AND {partition} = `)
	b.WriteString(strconv.Itoa(part) + ` AND {order} > ` + strconv.FormatInt(after, 10))
	if len(known) > 0 {
		b.WriteString(` AND {order} + 0 NOT IN ` + list(known))
	}
	if exclude > 0 {
		b.WriteString(` AND ({key} IS NULL OR {key.bytes} NOT IN ` + places(exclude) + `)`)
	}
	b.WriteString(` ORDER BY {order} LIMIT ` + strconv.Itoa(limit+1))
	return t.fill(b.String())
}

// bySeq is the table as rows of it are found by their numbers, whatever the statistics say of it.
const bySeq = `{table} FORCE INDEX ({order_index})`

// list writes numbers as SQL: (1, 2).
func list[N int | int64](numbers []N) string {
	b := make([]byte, 0, 2+8*len(numbers))
	for i, n := range numbers {
		b = append(b, "(,"[min(i, 1)])
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(append(b, ')'))
}

// places writes n placeholders: (?, ?).
func places(n int) string { return "(?" + strings.Repeat(", ?", n-1) + ")" }

// inEachPartition writes a query for each partition, {n} being its number, and puts their rows together.
func (src *Source) inEachPartition(query string) string {
	parts := make([]string, src.s.partitions)
	for part := range parts {
		parts[part] = "(" + strings.ReplaceAll(query, "{n}", strconv.Itoa(part)) + ")"
	}
	return src.text.fill(strings.Join(parts, " UNION ALL "))
}
