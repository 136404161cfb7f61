//go:build linux && !race

package chaos

func buildFlags() []string { return nil }
