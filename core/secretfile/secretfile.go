// Package secretfile is a secret of a sink's settings that may be in a file instead, which is read again when it has
// changed: passwords and tokens are renewed beside a sink that runs for months.
package secretfile

import (
	"bytes"
	"fmt"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/reread"
	"github.com/connectd/connectd/core/settings"
)

// maxSecret bounds a file with a secret, in bytes.
const maxSecret = 64 << 10

// Secret gives a secret as it is now. It may be called concurrently. It is a function so that nothing prints it.
type Secret func() (string, error)

// Value is a secret that stays.
func Value(text string) Secret { return func() (string, error) { return text, nil } }

// File is the text of a file, without line ends behind it, read again when the file has changed. It must not be empty nor
// longer than 64 KiB. Errors name the file and show nothing of it.
func File(path string) Secret {
	return reread.New(maxSecret, func(contents [][]byte) (string, error) {
		text := bytes.TrimRight(contents[0], "\r\n")
		if len(text) == 0 {
			return "", fmt.Errorf("%s is empty", path)
		}
		return string(text), nil
	}, path).Get
}

// Password is the settings of a password, for a struct of settings to embed.
type Password struct {
	Value settings.Secret `json:"password" doc:"the password"`
	File  string          `json:"password_file" doc:"file that holds it instead, read again when it changes"`
}

// Set reports whether there is a password or a file.
func (p *Password) Set() bool { return p.Value.Reveal() != "" || p.File != "" }

// Resolve makes the file's path absolute: a relative one is relative to dir. Without a dir it stays, for Check to refuse.
func (p *Password) Resolve(dir string) { settings.Absolute(dir, &p.File) }

// Check says what is wrong with the settings, which are below the pointer ("/sasl", or "" where they are at the top). It
// comes after Resolve and opens no file. Whether a password is needed is for the caller to say.
func (p *Password) Check(pointer string) []core.Diagnostic {
	var problems settings.Problems
	problems.WrongIf(p.Value.Reveal() != "" && p.File != "", pointer+"/password_file",
		"is one too many beside %s; leave out one of them", settings.Name(pointer+"/password"))
	problems.Path(pointer+"/password_file", p.File)
	return problems
}

// Secret is the password as it is now; "" when there is none.
func (p *Password) Secret() Secret {
	if p.File != "" {
		return File(p.File)
	}
	return Value(p.Value.Reveal())
}
