package durableexecution

import "testing"

func documented(t *testing.T, out string) {}
