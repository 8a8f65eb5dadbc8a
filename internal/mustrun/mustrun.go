// Package mustrun decides what becomes of a test that the machine lacks
// something for. Elsewhere it is skipped, with the reason, so that go test is of
// use to everybody; where AGENT_INIT_MUST_RUN=1 is set it fails, so that nothing
// is skipped unseen.
package mustrun

import (
	"os"
	"os/exec"
)

// TB is the part of testing.TB that is needed to skip or to fail.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Lacks ends the test for want of what it says.
func Lacks(tb TB, format string, args ...any) {
	tb.Helper()
	lacks(tb, os.Getenv("AGENT_INIT_MUST_RUN") == "1", format, args...)
}

func lacks(tb TB, must bool, format string, args ...any) {
	tb.Helper()
	if must {
		tb.Fatalf(format+", and AGENT_INIT_MUST_RUN=1 forbids to skip", args...)
	}
	tb.Skipf(format, args...)
}

// Root ends the test unless it runs as root.
func Root(tb TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		Lacks(tb, "root is needed")
	}
}

// Tool returns the path of a program, and ends the test if there is none.
func Tool(tb TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Lacks(tb, "%v", err)
	}
	return path
}
