//go:build !race

package engine

const defaultSeeds = 10_000
