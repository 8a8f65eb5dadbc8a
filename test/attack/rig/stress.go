package rig

import (
	"os"
	"time"
)

// stress is for make stress: the same tests, for as long as it takes to believe
// them.
func stress() bool { return os.Getenv("AGENT_INIT_STRESS") == "1" }

// Often is how often a test does something: usually, and under stress.
func Often[T any](usually, stressed T) T {
	if stress() {
		return stressed
	}
	return usually
}

// Large is the length of a stream that goes on for longer than anything is held.
func Large() int64 { return Often[int64](128<<20, 1<<30) }

// Recovers waits for health, without help, and that what is allowed works.
func (w *World) Recovers(after string) {
	w.Helper()
	if !Eventually(60*time.Second, func() bool { _, code := w.Status(); return code == 0 }) {
		s, _ := w.Status()
		w.Fatalf("not healthy after %s: %v\n%s", after, s["why"], w.Agent.Stderr())
	}
	var last string
	if !Eventually(20*time.Second, func() bool {
		p := w.Poke("http", "https://ok.test/")
		last = p.String()
		return p.OK
	}) {
		w.Errorf("what is allowed does not work after %s: %s", after, last)
	}
}

// Closed fails the test if anything can be reached, or was, that the policy does
// not name.
func (w *World) Closed(allowed ...string) {
	w.Helper()
	w.Blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
	w.Blocked("udp", "-timeout", "300ms", "1.1.1.1:443")
	w.UpstreamOnlyOr(append(allowed, "ok.test")...)
	w.Unasked("evil.test")
}
