// Package jsonrecord writes a record as a JSON object, the one that scripts and receivers rely on:
//
//	{"id","key","route","type","headers","payload" or "payload_base64","created_at","deliveries","possible_duplicate","epoch"}
//
// It is written by hand because a payload that is JSON is embedded byte for byte: number spellings, key order and
// duplicate keys are its producer's.
package jsonrecord

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// Time is a time as all that is sent has it: RFC 3339 in UTC with exactly six digits. A zero time is none, "".
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(time.UTC).Format(timeLayout)
}

// Append adds a record. Fields and their order are a contract; how strings are escaped is the caller's, whose str adds one
// with its quotes. On one line a payload of several lines loses the blanks between its tokens; there is no line end after
// the object.
func Append(dst []byte, r *core.Record, oneLine bool, str func(dst []byte, s string) []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = str(dst, r.ID)
	dst = append(dst, `,"key":`...)
	if r.Keyed {
		dst = str(dst, r.Key)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"route":`...)
	dst = str(dst, r.Route)
	dst = append(dst, `,"type":`...)
	dst = str(dst, r.Type)
	dst = append(dst, `,"headers":{`...)
	for i, h := range r.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = str(dst, h.Name)
		dst = append(dst, ':')
		dst = str(dst, h.Value)
	}
	dst = append(dst, '}')
	dst = AppendPayload(dst, "payload", "payload_base64", r.Payload, oneLine)
	dst = append(dst, `,"created_at":`...)
	if r.CreatedAt.IsZero() {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, '"')
		dst = r.CreatedAt.In(time.UTC).AppendFormat(dst, timeLayout)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"deliveries":`...)
	dst = strconv.AppendInt(dst, int64(r.Deliveries), 10)
	dst = append(dst, `,"possible_duplicate":`...)
	dst = strconv.AppendBool(dst, r.PossibleDuplicate())
	dst = append(dst, `,"epoch":`...)
	dst = strconv.AppendInt(dst, r.Epoch, 10)
	return append(dst, '}')
}

// AppendPayload adds a payload as a further member of an object: under name as the JSON it is, blanks included, or under
// base64Name if it is none. On one line it loses the blanks between its tokens if there are line ends among them.
func AppendPayload(dst []byte, name, base64Name string, payload []byte, oneLine bool) []byte {
	if !utf8.Valid(payload) || !json.Valid(payload) {
		return AppendBase64(dst, base64Name, payload)
	}
	dst = appendName(dst, name)
	if !oneLine || bytes.IndexByte(payload, '\n') < 0 && bytes.IndexByte(payload, '\r') < 0 {
		return append(dst, payload...)
	}
	compact := bytes.NewBuffer(dst)
	if err := json.Compact(compact, payload); err != nil {
		panic("valid JSON cannot be compacted: " + err.Error()) // json.Valid said otherwise
	}
	return compact.Bytes()
}

// AppendBase64 adds data as a further member of an object.
func AppendBase64(dst []byte, name string, data []byte) []byte {
	dst = append(appendName(dst, name), '"')
	dst = base64.StdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
}

// appendName adds what stands before a further member's value. The name needs no escaping.
func appendName(dst []byte, name string) []byte {
	dst = append(dst, `,"`...)
	dst = append(dst, name...)
	return append(dst, `":`...)
}

// AppendString adds a JSON string. Bytes that are no UTF-8 become U+FFFD, since JSON cannot hold them.
func AppendString(dst []byte, s string) []byte {
	plain := utf8.ValidString(s)
	for i := 0; plain && i < len(s); i++ {
		plain = s[i] >= ' ' && s[i] != '"' && s[i] != '\\'
	}
	if plain {
		dst = append(dst, '"')
		dst = append(dst, s...)
		return append(dst, '"')
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic("a string that JSON cannot hold: " + err.Error()) // there is none
	}
	return append(dst, text...)
}
