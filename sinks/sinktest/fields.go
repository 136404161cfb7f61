package sinktest

import (
	"strings"
	"time"

	"github.com/connectd/connectd/core"
)

// wantFields checks that the records, which were delivered once each, are at the destination as they were sent.
func (c *trial) wantFields(sent []core.Record) {
	c.Helper()
	got := map[string]core.Record{}
	for _, r := range c.Received(c) {
		got[r.ID] = r
	}
	for _, want := range sent {
		arrived, ok := got[want.ID]
		if !ok {
			c.Errorf("the record with id %.80q did not arrive under its id", want.ID)
			continue
		}
		if c.Expect != nil {
			want = c.Expect(want)
		}
		if err := same(want, arrived); err != nil {
			c.Errorf("record %.80q did not arrive as it was sent: %v", want.ID, err)
		}
	}
}

// compare delivers the records one by one and reads them back.
func (c *trial) compare(records []core.Record) {
	c.Helper()
	c.open()
	for i := range records {
		c.deliverAll(records[i : i+1])
	}
	c.wantFields(records)
}

// checkNames tries ids, keys, routes and types that are not plain words. A record without a key and one with an empty
// key differ.
func checkNames(c *trial) {
	records := c.records(6, "a")
	records[0].Key, records[0].Keyed = "", false
	records[1].Key = "" // but keyed
	records[2].Key, records[2].Type = "Straße 7/ü €😀", "Bestellung-geändert"
	records[3].ID, records[3].Key = `"id" \ <&> {x}`, `a,b;c="d" 100%`
	records[4].ID, records[4].Key = strings.Repeat("i", 200), strings.Repeat("k", 200)
	records[5].Type = ""
	c.compare(records)
}

// checkPayloads tries bytes of every kind; none may be touched.
func checkPayloads(c *trial) {
	payloads := []string{
		`{"b":1.0,"a":"\u003c","a":2}`, // spelling, order and duplicates are the producer's
		`[12345678901234567890.10, 1E+2, -0]`,
		` { "blanks" : [ ] } `,
		"{\n\t\"several\": \"lines\"\r\n}\n",
		"\"separators \u2028 \u2029 and <script>\"",
		"null", "0", `""`, "\"😀\"",
		"plain text, no JSON", `{"torn":`, "a\nb\n",
		"\x00", "\xff\xfe\x00\x80", "\"\xc3\x28\"", "\xef\xbb\xbf{}",
		"", " ", "\n",
	}
	records := c.records(len(payloads) + 1)
	for i, p := range payloads {
		records[i].Payload = []byte(p)
	}
	records[len(payloads)].Payload = nil
	c.compare(records)
}

// checkHeaders tries header values; header names are plain, since many transports allow no others.
func checkHeaders(c *trial) {
	sets := [][]core.Header{
		nil,
		{{Name: "empty", Value: ""}},
		{{Name: "emoji", Value: "grüße 😀"}, {Name: "quotes", Value: `a "b" \ 'c' <d>`}},
		{{Name: "z", Value: "1"}, {Name: "a", Value: "2"}, {Name: "m", Value: strings.Repeat("v", 1000)}}, // in this order
	}
	records := c.records(len(sets))
	for i := range sets {
		records[i].Headers = sets[i]
	}
	c.compare(records)
}

// checkNumbers tries the numbers a consumer may need: which send this is, under which epoch, created when.
func checkNumbers(c *trial) {
	records := c.records(4)
	records[1].Deliveries = 2 // a possible duplicate
	records[2].Deliveries, records[2].Epoch = 1_000_000, 1<<53+1
	records[3].CreatedAt = time.Date(2031, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	c.compare(records)
}
