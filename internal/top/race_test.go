//go:build race

package top

// slower is how much a race detector makes it.
const slower = 20
