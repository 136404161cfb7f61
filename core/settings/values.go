package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time, written with its unit: "500ms", "1m30s", "7d". A bare number is refused, because
// nobody can tell what it counts.
type Duration time.Duration

// UnmarshalText is ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	if err == nil {
		*d = Duration(v)
	}
	return err
}

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d Duration) String() string { return time.Duration(d).String() }

// errDuration does not repeat the text, which may be a secret in the wrong place.
var errDuration = errors.New(`must be a duration with a unit, such as "500ms", "30s", "5m", "24h" or "7d"`)

// ParseDuration reads a duration that is not negative. It takes what time.ParseDuration takes, and days (24 hours)
// in front; it refuses a number without a unit, also zero. Its errors do not repeat the text.
func ParseDuration(text string) (time.Duration, error) {
	rest, days := text, int64(0)
	if before, after, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(before, 10, 16)
		if err != nil {
			return 0, errDuration
		}
		rest, days = after, int64(n)
		if rest == "" {
			rest = "0s"
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || rest == "0" || rest == "+0" || rest == "-0" {
		return 0, errDuration
	}
	if d < 0 {
		return 0, errors.New("must be a duration that is not negative")
	}
	const day = 24 * time.Hour
	if days > int64((math.MaxInt64-d)/day) {
		return 0, errors.New("must be a duration below 292 years")
	}
	return time.Duration(days)*day + d, nil
}

// Bytes is a size: "500kB" and "2MB" count in thousands, "64KiB" and "1MiB" in 1024s; a bare number is bytes.
type Bytes int64

// UnmarshalText is ParseBytes.
func (b *Bytes) UnmarshalText(text []byte) error {
	v, err := ParseBytes(string(text))
	if err == nil {
		*b = Bytes(v)
	}
	return err
}

// MarshalText writes what UnmarshalText reads.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// Numeric says that a bare number is bytes.
func (b *Bytes) Numeric() {}

// String uses the largest binary unit that loses nothing.
func (b Bytes) String() string {
	for _, u := range [...]struct {
		name string
		size Bytes
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

var errBytes = errors.New(`must be a size: bytes, or a whole number with a unit, such as "64KiB", "1MiB" or "500kB"`)

// ParseBytes reads a size that is not negative. Its errors do not repeat the text.
func ParseBytes(text string) (int64, error) {
	digits := strings.TrimRight(text, "BGKMik")
	var size int64
	switch text[len(digits):] {
	case "", "B":
		size = 1
	case "kB":
		size = 1000
	case "MB":
		size = 1000 * 1000
	case "GB":
		size = 1000 * 1000 * 1000
	case "KiB":
		size = 1 << 10
	case "MiB":
		size = 1 << 20
	case "GiB":
		size = 1 << 30
	default:
		return 0, errBytes
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && n > uint64(math.MaxInt64/size):
		return 0, errors.New("must be a size below 8EiB")
	case err != nil:
		return 0, errBytes
	}
	return int64(n) * size, nil
}

// Secret is text that does not show itself: printed, logged or marshalled it is "***", also deep inside another
// value. Compare secrets by Reveal, not by ==.
type Secret struct {
	// Behind a pointer, since fmt reads unexported fields without asking their methods.
	text *string
}

// NewSecret hides text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text; "" for the zero Secret.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

func (s Secret) String() string {
	if s.Reveal() == "" {
		return ""
	}
	return "***"
}

// Format keeps every verb of package fmt from the text.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue keeps package slog from the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText keeps every encoder from the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText hides text.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}
