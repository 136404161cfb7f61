package webhook

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/connectd/connectd/core/settings"
)

// instant is a point in time, written in RFC 3339; the zero instant is none.
type instant time.Time

// UnmarshalText reads RFC 3339.
func (i *instant) UnmarshalText(text []byte) error {
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return errors.New(`must be a time in RFC 3339, such as "2027-01-31T12:00:00Z"`)
	}
	*i = instant(t)
	return nil
}

// prefix is a range of IP addresses; a single address is a range of one.
type prefix netip.Prefix

// UnmarshalText reads an address or, with its length, a prefix.
func (p *prefix) UnmarshalText(text []byte) error {
	s := string(text)
	if addr, err := netip.ParseAddr(s); err == nil && addr.Zone() == "" {
		*p = prefix(netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()))
		return nil
	}
	parsed, err := netip.ParsePrefix(s)
	if err != nil {
		return errors.New(`must be an IP address or a prefix, such as "10.1.0.0/16" or "fd00::/8"`)
	}
	*p = prefix(parsed.Masked())
	return nil
}

// rate is how often something may happen.
type rate struct {
	count int
	per   time.Duration
}

// UnmarshalText reads "100/s", "600/m", "1000/h" or "5/10s".
func (r *rate) UnmarshalText(text []byte) error {
	wrong := errors.New(`must be requests in a time, such as "100/s", "600/m", "1000/h" or "5/10s"`)
	number, period, found := strings.Cut(string(text), "/")
	count, err := strconv.ParseUint(number, 10, 31)
	if err != nil || !found || count == 0 {
		return wrong
	}
	if period == "s" || period == "m" || period == "h" {
		period = "1" + period
	}
	per, err := settings.ParseDuration(period)
	if err != nil || per < time.Millisecond || per > 24*time.Hour {
		return wrong
	}
	*r = rate{int(count), per}
	return nil
}

// perSecond is the rate as a number of events a second.
func (r rate) perSecond() float64 { return float64(r.count) / r.per.Seconds() }

// statuses is a set of HTTP status codes.
type statuses []statusRange

// statusRange is the codes from first to last.
type statusRange struct{ first, last int }

// UnmarshalText reads "404", "410-419" or "4xx".
func (r *statusRange) UnmarshalText(text []byte) error {
	s := string(text)
	if class, found := strings.CutSuffix(s, "xx"); found {
		s = class + "00-" + class + "99"
	}
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	first, err1 := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil || len(from) != 3 || len(to) != 3 || first < 100 || last < first {
		return errors.New(`must be status codes, such as 404, "410-419" or "4xx"`)
	}
	*r = statusRange{int(first), int(last)}
	return nil
}

// Numeric says that a bare number is a code.
func (r *statusRange) Numeric() {}

// has says whether the set has the code.
func (s statuses) has(code int) bool {
	for _, r := range s {
		if r.first <= code && code <= r.last {
			return true
		}
	}
	return false
}

// meets says whether the set and the range have a code in common.
func (s statuses) meets(other statusRange) bool {
	for _, r := range s {
		if r.first <= other.last && other.first <= r.last {
			return true
		}
	}
	return false
}
