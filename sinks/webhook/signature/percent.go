package signature

import (
	"errors"
	"net/url"
	"strings"
)

// PercentEncode writes text so that any of it fits into an HTTP header, as the CloudEvents HTTP binding does for
// attributes (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md, section
// 3.1.3.2): space, double quote, percent sign and whatever is not printable ASCII, byte by byte.
func PercentEncode(s string) string {
	const hexDigits = "0123456789ABCDEF"
	if !strings.ContainsFunc(s, escaped) {
		return s
	}
	var b strings.Builder
	b.Grow(2 * len(s))
	for _, c := range []byte(s) {
		if !escaped(rune(c)) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

// escaped says whether a character, or a byte of one, does not stay as it is.
func escaped(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '%' }

// PercentDecode gives back what PercentEncode was given. What need not have been encoded may be, in hexadecimal digits of
// either case, and what should have been may be as it is.
func PercentDecode(s string) (string, error) {
	text, err := url.PathUnescape(s)
	if err != nil {
		return "", errors.New("a percent sign must be followed by two hexadecimal digits")
	}
	return text, nil
}
