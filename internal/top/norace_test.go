//go:build !race

package top

// slower is how much a race detector makes it: there is none.
const slower = 1
