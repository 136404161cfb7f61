package cloudevents

import (
	"mime"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/jsonrecord"
)

// The media types of what AppendJSON writes, and of a JSON array of such events.
const (
	JSON      = "application/cloudevents+json"
	BatchJSON = "application/cloudevents-batch+json"
)

// AppendJSON adds an event in structured mode, a JSON object without a line end after it
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md). contentType is the payload's: data
// that is JSON, and said to be, is embedded as it is; all other data is data_base64. The error is that of Attributes.
func (m *Mapper) AppendJSON(dst []byte, r *core.Record, contentType string) ([]byte, error) {
	all, err := m.Attributes(r)
	if err != nil {
		return dst, err
	}
	for i, a := range all {
		switch {
		case i == 0:
			dst = append(dst, `{"`+a.Name+`":`...)
			dst = jsonrecord.AppendString(dst, a.Value)
		case a.Literal:
			dst = append(dst, `,"`+a.Name+`":`+a.Value...)
		default:
			dst = appendMember(dst, a.Name, a.Value)
		}
	}
	dst = appendMember(dst, "datacontenttype", contentType)
	switch {
	case len(r.Payload) == 0:
	case isJSON(contentType):
		dst = jsonrecord.AppendPayload(dst, "data", "data_base64", r.Payload, false)
	default:
		dst = jsonrecord.AppendBase64(dst, "data_base64", r.Payload)
	}
	return append(dst, '}'), nil
}

// isJSON reports whether data of a media type is embedded as JSON. The specification would have it of every type that
// ends with +json; but the SDK for Go reads those as strings only, and everybody reads data_base64.
func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || media == "text/json")
}

// appendMember adds a string as a further member of an object.
func appendMember(dst []byte, name, value string) []byte {
	dst = append(dst, `,"`+name+`":`...)
	return jsonrecord.AppendString(dst, value)
}
