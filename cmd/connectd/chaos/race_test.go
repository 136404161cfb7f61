//go:build linux && race

package chaos

func buildFlags() []string { return []string{"-race"} }
