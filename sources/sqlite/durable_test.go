package sqlite

import (
	"path/filepath"
	"testing"
)

// An announcement that a power cut takes back would be sent again without the mark. No test can cut the power; this one
// asks the connection whether it syncs each commit (2 is FULL).
func TestG6CommitsAreSyncedToTheDisk(t *testing.T) {
	db := connect(filepath.Join(t.TempDir(), "a.db"), access{mode: "rwc"})
	defer db.Close()
	var level int
	if err := db.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&level); err != nil || level != 2 {
		t.Errorf("synchronous is %d (%v), want 2", level, err)
	}
}
