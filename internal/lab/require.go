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

// Require skips the test unless the process is root. Where
// AGENT_INIT_MUST_RUN=1 is set it fails instead: nothing is skipped unseen.
func Require(tb interface {
	TB
	Skipf(format string, args ...any)
}) {
	tb.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("AGENT_INIT_MUST_RUN") == "1" {
		tb.Fatalf("the lab needs root, and AGENT_INIT_MUST_RUN=1 forbids to skip")
	}
	tb.Skipf("the lab needs root")
}
