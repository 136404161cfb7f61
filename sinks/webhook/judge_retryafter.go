package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// minRetryAfter is the shortest wait that a receiver can ask for.
const minRetryAfter = time.Second

// retryAfter reads the header Retry-After (RFC 9110 section 10.2.3): whole seconds, or a date in any of HTTP's three
// forms. Whatever else is there counts as nothing, and not as zero: several values, fractions, signs, other dates. The wait
// is not clamped; that until a date in the past is negative.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	values := h["Retry-After"]
	if len(values) != 1 {
		return 0, false
	}
	text := strings.Trim(values[0], " \t")
	if text != "" && strings.Trim(text, "0123456789") == "" {
		return wholeSeconds(text)
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return date.Sub(now), true
}

// wholeSeconds reads digits. Twenty and more of them are no number of seconds that anybody means.
func wholeSeconds(digits string) (time.Duration, bool) {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || len(digits) > 19 {
		return 0, false
	}
	const longest = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(n, longest)) * time.Second, true
}

// clamp brings a wait that a receiver asked for between a second and retry_after_max, and makes it longer by up to a
// tenth, so that not all who were asked come back at once.
func (j *judge) clamp(wait time.Duration) time.Duration {
	wait = min(max(wait, minRetryAfter), time.Duration(j.config.RetryAfterMax))
	return wait + time.Duration(j.random()*float64(wait)/10)
}
