package mysql

import (
	"errors"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// discreetError is a server's error that does not name the user and, when it is one of connecting, shows of the DSN no more
// than host, port and database. A part of a password may be anything else there, when the DSN is mistyped.
type discreetError struct {
	text string
	err  error
}

func (e *discreetError) Error() string { return e.text }
func (e *discreetError) Unwrap() error { return e.err }

var (
	account    = regexp.MustCompile(`'[^']*'@'[^']*'`)
	quotedPart = regexp.MustCompile(`'[^']*'`)
)

// discreet hides the user's name in an error if a server's is in it.
func discreet(err error) error {
	return hide(err, func(text string) string { return account.ReplaceAllString(text, "***") })
}

// discreetly hides in an error of connecting whatever the server quotes, but for the database.
func discreetly(err error, database string) error {
	return hide(err, func(text string) string {
		return quotedPart.ReplaceAllStringFunc(account.ReplaceAllString(text, "***"), func(part string) string {
			if strings.Trim(part, "'") == database {
				return part
			}
			return "***"
		})
	})
}

func hide(err error, in func(text string) string) error {
	var from *mysql.MySQLError
	if !errors.As(err, &from) {
		return err
	}
	text := strings.Replace(err.Error(), from.Message, in(from.Message), 1)
	if text == err.Error() {
		return err
	}
	return &discreetError{text, err}
}
