package keeper

import (
	"cmp"
	"fmt"
	"io"

	"github.com/agent-init/agent-init/internal/state"
)

// Monitor mode is chosen by the flag alone: no file, no grant and no failure
// leads to it, and a keeper that runs does not change its mode.

// announceOpen says so where nobody can miss it, also with --quiet.
func announceOpen(w io.Writer, noColor bool, colour string, lines ...string) {
	plain := "\x1b[0m"
	if noColor {
		colour, plain = "", ""
	}
	for _, line := range lines {
		fmt.Fprintf(w, "%s%s%s\n", colour, line, plain)
	}
}

// signOfOpen has the agent's shells say so in their prompts: those that take PS1
// from the environment, and bash as Debian and Ubuntu set it up, which shows
// debian_chroot.
func signOfOpen(env map[string]string, how string) {
	sign := "NOT CONFINED: " + how
	env["PS1"] = "[" + sign + "] " + cmp.Or(env["PS1"], "$ ")
	env["debian_chroot"] = sign
}

// SayIfOpen says so to whoever attaches, and again when they leave.
func SayIfOpen(w io.Writer) {
	dir, err := state.Find()
	if err != nil {
		return
	}
	var s state.State
	if dir.Read(state.StatusFile, &s) == nil && s.Open() != "" {
		fmt.Fprintf(w, "[the network is NOT CONFINED: %s]\n", s.Open())
	}
}
