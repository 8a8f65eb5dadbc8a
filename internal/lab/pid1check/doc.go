// Command pid1check holds what a container's init owes the programs below it as a list of checks, each of which runs an
// init program in namespaces of its own and looks at it from outside. Its tests are the conformance tests of agent-init;
// the command compares it with tini, dumb-init and catatonit, and prints which checks pass.
//
// Usage: pid1check [-write FILE] [-only NAME,…] [-v]
//
// With -write it puts the table into FILE (docs/supervision.md), between the lines that mark its place. It exits 1 if
// agent-init fails a check, never for the others. It needs root, and AGENT_INIT_BIN or a Go toolchain.
//
// A check is a condition that is waited for, never a time that is measured; how long to wait for a condition that does not
// come is the Subject's Patience. In those namespaces this program plays roles itself: main calls Role first.
package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Mode is where the init runs.
type Mode string

// The modes: PID 1 of a PID namespace, or the child of another PID 1, as under
// docker run --init.
const (
	PID1  Mode = "PID 1"
	Below Mode = "below another"
)

// Check is one behaviour.
type Check struct {
	Name    string // unique
	Group   string // heading
	Text    string // what is expected, of any init
	Only    Mode   // the one mode that it makes sense in, or ""
	Differs string // why agent-init does otherwise, on purpose; else empty
	run     func(*trial)
}

// Checks returns all of them, in the order of a report.
func Checks() []Check {
	var all []Check
	for _, g := range []struct {
		name   string
		checks []Check
	}{
		{"Exit codes", exitChecks()},
		{"What the command gets", slices.Concat(stateChecks(), inheritedChecks())},
		{"Signals", signalChecks()},
		{"Signal targets", targetChecks()},
		{"Reaping", reapChecks()},
		{"The end", endChecks()},
		{"Terminals", slices.Concat(terminalChecks(), terminalEndChecks())},
		{"Suspending", slices.Concat(suspendChecks(), jobChecks())},
	} {
		for _, c := range g.checks {
			c.Group = g.name
			all = append(all, c)
		}
	}
	return all
}

// Modes returns the modes that c is for.
func (c Check) Modes() []Mode {
	if c.Only != "" {
		return []Mode{c.Only}
	}
	return []Mode{PID1, Below}
}

// Flags are the options of an init that a check asks for.
type Flags struct {
	Grace  time.Duration // 0: the default; Forever: never kill
	Target string        // "group" or "child"; empty: the default
}

// Forever is a grace that does not end.
const Forever = time.Duration(-1)

// Subject is an init program.
type Subject struct {
	Name string

	// Argv returns the command line up to the command, or nil if the program
	// has no such option.
	Argv func(Mode, Flags) []string

	// Drop makes the command run under another uid, if the program does not do
	// that itself.
	Drop []string

	Helpers  int           // children of its own, beside the command
	Patience time.Duration // for a condition to come true
}

// ErrNotOffered is the result of a check that needs an option which the init
// does not have.
var ErrNotOffered = errors.New("no such option")

// Run does one check. Its error is ErrNotOffered, or says what went wrong.
func Run(s Subject, m Mode, c Check) (err error) {
	if c.Differs != "" { // what agent-init does not do need not be waited for
		s.Patience = min(s.Patience, 6*time.Second)
	}
	t := &trial{subject: s, mode: m}
	defer func() {
		for i := len(t.cleanups) - 1; i >= 0; i-- {
			t.cleanups[i]()
		}
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	c.run(t)
	return nil
}

// trial is one run of one check.
type trial struct {
	subject  Subject
	mode     Mode
	cleanups []func()
}

type failure struct{ error }

func (t *trial) failf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (t *trial) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func (t *trial) cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// until waits for a condition.
func (t *trial) until(what string, ok func() bool) {
	for deadline := time.Now().Add(t.subject.Patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.failf("not within %v: %s", t.subject.Patience, what)
		}
	}
}
