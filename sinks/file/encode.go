package file

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/connectd/connectd/core"
)

// createdLayout is RFC 3339 with exactly six digits; times are converted to UTC first.
const createdLayout = "2006-01-02T15:04:05.000000Z07:00"

// lineStart is what each line begins with; a torn last line is known by it.
const lineStart = `{"id":"`

// appendLine adds the record as one line of JSON. Fields and their order are a contract with whoever reads the file.
func appendLine(dst []byte, r *core.Record) []byte {
	dst = append(dst, lineStart...)
	dst = appendText(dst, r.ID)
	dst = append(dst, `","key":`...)
	if r.Keyed {
		dst = appendString(dst, r.Key)
	} else {
		dst = append(dst, "null"...)
	}
	dst = append(dst, `,"route":`...)
	dst = appendString(dst, r.Route)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, r.Type)
	dst = append(dst, `,"headers":{`...)
	for i, h := range r.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, h.Name)
		dst = append(dst, ':')
		dst = appendString(dst, h.Value)
	}
	dst = append(dst, '}')
	dst = appendPayload(dst, r.Payload)
	dst = append(dst, `,"created_at":"`...)
	dst = r.CreatedAt.In(time.UTC).AppendFormat(dst, createdLayout)
	dst = append(dst, `","deliveries":`...)
	dst = strconv.AppendInt(dst, int64(r.Deliveries), 10)
	dst = append(dst, `,"possible_duplicate":`...)
	dst = strconv.AppendBool(dst, r.PossibleDuplicate())
	dst = append(dst, `,"epoch":`...)
	dst = strconv.AppendInt(dst, r.Epoch, 10)
	return append(dst, "}\n"...)
}

// appendPayload embeds JSON as it is: number spellings, key order, duplicate keys and blanks stay, and only a payload
// of several lines loses the blanks between its tokens. Everything else goes as base64.
func appendPayload(dst, payload []byte) []byte {
	if !utf8.Valid(payload) || !json.Valid(payload) {
		dst = append(dst, `,"payload_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, payload)
		return append(dst, '"')
	}
	dst = append(dst, `,"payload":`...)
	if bytes.IndexByte(payload, '\n') < 0 && bytes.IndexByte(payload, '\r') < 0 {
		return append(dst, payload...)
	}
	compact := bytes.NewBuffer(dst)
	if err := json.Compact(compact, payload); err != nil {
		panic("valid JSON cannot be compacted: " + err.Error()) // json.Valid said otherwise
	}
	return compact.Bytes()
}

func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst = appendText(dst, s)
	return append(dst, '"')
}

// appendText escapes what JSON demands and nothing else; bytes that are no UTF-8 become U+FFFD, since a JSON string
// cannot hold them.
func appendText(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\uFFFD"...)
			start = i + size
		}
		i += size
	}
	return append(dst, s[start:]...)
}
