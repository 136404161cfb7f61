package postgres

import (
	"cmp"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

// discreetError is an error of connecting that shows of the DSN no more than host, port and database. A part of a password
// may be anything else there, when the DSN is mistyped: the user, or the name of a setting.
type discreetError struct {
	text string
	err  error
}

func (e *discreetError) Error() string { return e.text }
func (e *discreetError) Unwrap() error { return e.err }

// discreet makes an error discreet if it is one of connecting, or wraps one.
func discreet(err error) error {
	var done *discreetError
	var c *pgconn.ConnectError
	if errors.As(err, &done) || !errors.As(err, &c) {
		return err
	}
	text := hide(c.Unwrap().Error(), c.Config)
	if c.Config.Database != "" {
		text = "database " + c.Config.Database + ": " + text
	}
	return &discreetError{strings.Replace(err.Error(), c.Error(), text, 1), err}
}

// quotedPart is a name or a value as the server quotes it, in the languages that it speaks.
var quotedPart = regexp.MustCompile(`"[^"]*"|«[^»]*»|„[^“”]*[“”]|“[^”]*”|'[^']*'`)

// hide replaces what the server quotes, but for the database, and what else the DSN says.
func hide(text string, c *pgconn.Config) string {
	text = quotedPart.ReplaceAllStringFunc(text, func(part string) string {
		if c.Database != "" && strings.Trim(part, `"'«»„“” `) == c.Database {
			return part
		}
		return `"***"`
	})
	secrets := []string{c.User, c.Password}
	for name, value := range c.RuntimeParams {
		if settings[name] == "" && tracked[name] == "" {
			secrets = append(secrets, name, value)
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, secret := range secrets {
		if secret != "" && secret != c.Host && secret != c.Database {
			text = replaceWord(text, secret)
		}
	}
	return text
}

// replaceWord replaces a secret where it is not part of a longer word.
func replaceWord(text, secret string) string {
	inWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	var b strings.Builder
	for {
		i := strings.Index(text, secret)
		if i < 0 {
			return b.String() + text
		}
		before, _ := utf8.DecodeLastRuneInString(text[:i])
		after, _ := utf8.DecodeRuneInString(text[i+len(secret):])
		b.WriteString(text[:i])
		if len(secret) < 4 && (inWord(before) || inWord(after)) {
			b.WriteString(secret)
		} else {
			b.WriteString("***")
		}
		text = text[i+len(secret):]
	}
}

// tlsCause is why TLS cannot be had, without the names of files and the values that the DSN gives.
func tlsCause(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return strings.Replace(err.Error(), path.Error(), path.Err.Error(), 1)
	}
	return quotedPart.ReplaceAllString(err.Error(), `"***"`)
}

// settingName is what a setting of a session can be called.
var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.$]*$`)

// mistyped says that a DSN is most likely not what was meant: a password with a special character cuts a URL short, and
// one with a blank ends a value.
func mistyped(dsn string, params map[string]string) bool {
	if _, url, is := strings.Cut(dsn, "://"); is && (strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")) {
		if end := strings.IndexAny(url, "/?#"); end >= 0 && strings.ContainsAny(url[end:], "@#") {
			return true
		}
	}
	for name := range params {
		if !settingName.MatchString(name) {
			return true
		}
	}
	return false
}
