package stage

import (
	"strconv"
	"syscall"
)

// ParentName is the command that starts a program on a terminal, and stays as its parent.
//
// A program suspends itself on ^Z by a TSTP to its own process group. The kernel discards that if the group is orphaned:
// no member has a parent in another group of the same session (setpgid(2); is_current_pgrp_orphaned in kernel/exit.c).
// Claude Code has given the terminal back by then, and waits for a CONT for good. A program that leads the session is
// always orphaned. So this process leads it, with the program in a group of its own, as a shell would; and
// resumes what stops, since no shell is there for that.
const ParentName = "__parent"

// WithParent starts the command through ParentName, which sends signals on as target says (SignalGroups). The process is to
// have the rank SessionGoes: it may be the largest of many, and its end is that of the command, which has AgentGoes.
func WithParent(argv []string, target string) []string {
	score := "" // the kernel does not tell
	if own, err := SetOOMScore(func(own int) int { return own }); err == nil {
		score = strconv.Itoa(AgentGoes.oomScore(own))
	}
	return append([]string{Self, ParentName, "--signal-target", target, "--oom-score", score, "--"}, argv...)
}

// SignalGroups say which signals go to the agent's group, by --signal-target. By default, these are TERM, INT, HUP and
// QUIT.
var SignalGroups = map[string]func(syscall.Signal) bool{
	"group": func(syscall.Signal) bool { return true },
	"child": func(syscall.Signal) bool { return false },
}
