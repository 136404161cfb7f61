package file

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/connectd/connectd/core"
	"github.com/connectd/connectd/core/settings"
)

// logStream is the path that means the log instead of a file.
const logStream = "-"

type config struct {
	Path string   `json:"path" required:"true" doc:"file that lines are appended to; its directory must exist; - is the daemon's log"`
	Sync bool     `json:"sync" default:"true" doc:"wait until the disk has a line before it counts as delivered"`
	Mode fileMode `json:"mode" default:"0640" doc:"permissions of a file that the sink creates, in octal"`
}

// fileMode is permission bits, written in octal.
type fileMode fs.FileMode

// UnmarshalText reads octal permission bits.
func (m *fileMode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > 0o777 {
		return errors.New(`must be permission bits in octal and in quotes, such as "0640"`)
	}
	if n&0o200 == 0 {
		return errors.New("must let the owner write (0200), or the sink could not open its own file again")
	}
	*m = fileMode(n)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (m fileMode) MarshalText() ([]byte, error) {
	return append([]byte{'0'}, strconv.FormatUint(uint64(m), 8)...), nil
}

// parse reads the settings; the file system is not asked. A relative path is joined to dir.
func parse(data []byte, dir string) (config, []core.Diagnostic) {
	var c config
	diagnostics := settings.Decode(data, &c)
	if len(diagnostics) > 0 || c.Path == logStream {
		return c, diagnostics
	}
	if strings.HasSuffix(c.Path, "/") {
		return c, []core.Diagnostic{{Pointer: "/path", Message: "names a directory; add the file's name"}}
	}
	settings.Absolute(dir, &c.Path)
	var p settings.Problems
	p.Path("/path", c.Path)
	return c, p
}
