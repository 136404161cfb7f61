package layout

import "time"

// longest stands for every longer time, so that none overflows.
const longest = 100 * 365 * 24 * time.Hour

// Duration is n units, at most a hundred years either way: an application that delays a row may have written any time.
func Duration(n int64, unit time.Duration) time.Duration {
	most := int64(longest / unit)
	return time.Duration(min(max(n, -most), most)) * unit
}

// SinceEpoch is a time that an application wrote as a number of seconds, milliseconds or microseconds since 1970, told
// apart by size. 0 is no time, nor is what no calendar of four digits has: nothing that writes times as text takes it.
func SinceEpoch(n int64) time.Time {
	t := time.Unix(n, 0)
	switch {
	case n == 0:
		return time.Time{}
	case n > 1e14:
		t = time.UnixMicro(n)
	case n > 1e11:
		t = time.UnixMilli(n)
	}
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// ParseTime reads a time that an application, or a database, wrote as text: UTC unless it has a zone. What cannot be read
// is no time: a row is not held up for it.
func ParseTime(text string) time.Time {
	for _, form := range []string{"2006-01-02 15:04:05", time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}
