//go:build race

package engine

const defaultSeeds = 1_000
