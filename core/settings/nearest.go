package settings

import (
	"slices"
	"strings"
)

// Nearest returns the name that was probably meant by wrong, or "".
func Nearest(wrong string, names []string) string {
	// Much longer than any real name: no typing error, and the comparison below is quadratic.
	const longest = 64
	if len(wrong) > longest {
		return ""
	}
	fold := strings.NewReplacer("_", "", "-", "", ".", "", " ", "")
	bare := fold.Replace(strings.ToLower(wrong))
	best, bestDistance := "", 1+min(3, len(bare)/2)
	for _, name := range names {
		d := distance(bare, fold.Replace(strings.ToLower(name)))
		if d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// DidYouMean is what a message about a wrong name ends with: the nearest valid name, or all of them when none is near.
func DidYouMean(wrong string, names []string) string {
	if near := Nearest(wrong, names); near != "" {
		return `; did you mean "` + near + `"?`
	}
	if len(names) == 0 {
		return ""
	}
	sorted := slices.Sorted(slices.Values(names))
	return "; valid are " + strings.Join(sorted, ", ")
}

// distance counts the bytes to insert, delete, replace or swap with their neighbour to turn a into b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
