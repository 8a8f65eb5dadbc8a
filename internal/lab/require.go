package lab

import "os"

// TB is the part of testing.TB that the lab uses, so that a command can give
// it another.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// SkipTB is a TB that can also skip, as testing.TB can.
type SkipTB interface {
	TB
	Skipf(format string, args ...any)
}

// Require skips the test unless the process is root. Where
// AGENT_INIT_MUST_RUN=1 is set it fails instead: nothing is skipped unseen.
func Require(tb SkipTB) {
	tb.Helper()
	require(tb, os.Geteuid() == 0, os.Getenv("AGENT_INIT_MUST_RUN") == "1")
}

func require(tb SkipTB, root, must bool) {
	tb.Helper()
	switch {
	case root:
	case must:
		tb.Fatalf("the lab needs root, and AGENT_INIT_MUST_RUN=1 forbids to skip")
	default:
		tb.Skipf("the lab needs root")
	}
}
