package lab

import "github.com/agent-init/agent-init/internal/mustrun"

// TB is the part of testing.TB that the lab uses, so that a command can give
// it another.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Require skips the test unless the process is root, which the lab needs; where
// AGENT_INIT_MUST_RUN=1 is set it fails instead.
func Require(tb mustrun.TB) {
	tb.Helper()
	mustrun.Root(tb)
}
