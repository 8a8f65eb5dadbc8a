package main

import (
	"fmt"
	"io"
)

// Monitor mode is chosen by the flag alone: no file, no grant and no failure
// leads to it, and a keeper that runs does not change its mode.

func modeWord(monitor bool) string {
	if monitor {
		return "monitor"
	}
	return "enforce"
}

// announceMonitor says so where nobody can miss it, also with --quiet.
func (k *keeper) announceMonitor(w io.Writer) {
	yellow, plain := "\x1b[1;43;30m", "\x1b[0m"
	if k.config.noColor {
		yellow, plain = "", ""
	}
	for _, line := range []string{
		"  --mode monitor: THE NETWORK IS NOT CONFINED. What the policy denies is let through, and logged. ",
		"  Only metadata and reserved addresses stay denied. See agent-init suggest, then use enforce.     ",
	} {
		fmt.Fprintf(w, "%s%s%s\n", yellow, line, plain)
	}
}
