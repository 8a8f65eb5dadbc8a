package lab

import (
	"strings"
	"sync"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// TB is the part of testing.TB that the lab uses, so that a command can give
// it another.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Require is the beginning of a test that needs the lab. It skips the test
// unless the process is root; where AGENT_INIT_MUST_RUN=1 is set it fails
// instead. And it lets the test run beside others (testing.T.Parallel): each lab
// has namespaces of its own, and its tests wait for most of their time. Subtests
// run one after another, as they are written.
func Require(tb mustrun.TB) {
	tb.Helper()
	mustrun.Root(tb)
	t, ok := tb.(parallel)
	if !ok || strings.Contains(t.Name(), "/") {
		return
	}
	if _, before := beside.LoadOrStore(t, true); before {
		return
	}
	t.Cleanup(func() { beside.Delete(t) })
	t.Parallel()
}

// parallel is what a *testing.T has besides a TB.
type parallel interface {
	Name() string
	Parallel()
	Cleanup(func())
}

// beside has the tests that run beside others by now: a test may ask more than once, and testing.T must be told no more
// than once.
var beside sync.Map
