package host

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
)

// fault is a failure to start that comes back however often one tries, until the program or the settings change.
type fault struct{ err error }

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

func faultf(format string, args ...any) error { return &fault{err: fmt.Errorf(format, args...)} }

// openPinned opens the program, hashes what it opened and refuses another checksum than the wanted one. The caller runs
// this very descriptor, so that nobody can swap the file between the check and the start.
func openPinned(path, want string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, faultf("opening the program: %w", err)
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("hashing the program: %w", err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != strings.ToLower(strings.TrimSpace(want)) {
		_ = f.Close()
		return nil, faultf("%s has sha256 %s, but process.sha256 wants %s: it is not the program that was pinned", path, got, want)
	}
	return f, nil
}
