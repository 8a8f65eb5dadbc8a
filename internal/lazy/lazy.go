// Package lazy has regular expressions that are compiled when they are first needed. Each of our processes is a start of
// the whole binary: what its packages make at once, the stage of every command waits for.
package lazy

import (
	"regexp"
	"sync"
)

// Pattern gives the expression of a pattern, which has to be right: the first use panics otherwise. It may be used by several
// goroutines at once.
func Pattern(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
