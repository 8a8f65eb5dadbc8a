package keeper

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/policy"
)

// maxReadmeRules is how many rules it lists.
const maxReadmeRules = 200

// writeReadme writes for the agent, a program that reads: what it can reach, and
// what is a waste of its time.
func writeReadme(w io.Writer, p *policy.Policy, grants []grant.Grant, monitor bool) error {
	b := bufio.NewWriter(w)
	b.WriteString(`# This container's network is confined by agent-init

You run as an unprivileged user. Only what is listed below can be reached. This is on purpose, and it is not a fault of
the network: don't work around it, ask.

`)
	if monitor {
		b.WriteString("It runs in monitor mode: what is not listed is let through for now, recorded, and will be denied later.\n\n")
	}
	b.WriteString("## What can be reached\n\n```\n")
	count := 0
	for r := range p.Rules() {
		if count++; count <= maxReadmeRules {
			fmt.Fprintf(b, "%-44s # %s\n", r, r.Source)
		}
	}
	if count > maxReadmeRules {
		fmt.Fprintf(b, "# and %d more\n", count-maxReadmeRules)
	}
	if count == 0 {
		b.WriteString("# nothing\n")
	}
	b.WriteString("```\n\nA name without a port is reached on 443 and 80, over TCP. `*.` covers the name and all below it; `!` denies.\n\n")
	for _, g := range grants {
		if g.Kind == grant.Allow {
			fmt.Fprintf(b, "- `%s` is allowed until %s.\n", g.Target, g.Expires.UTC().Format(time.RFC3339))
		}
	}
	b.WriteString(`
## When something is refused

A name that is not allowed does not exist (NXDOMAIN), a request on port 80 gets a 403 that says why, and everything else is
refused at once. Trying again does not help. Instead:

    agent-init explain HOST                      # why, and the line that would allow it
    agent-init request HOST --reason "for what"  # ask a person
    agent-init grants                            # what became of it: granted, turned down and why, or waiting

## What not to try

None of this leads out, and all of it is recorded:

- other DNS servers, DNS over HTTPS or TLS, or data in DNS names
- addresses in place of names, other ports, IPv6 in place of IPv4, UDP, ICMP, raw sockets
- another name inside a connection to an allowed host: the name in TLS and HTTP is checked
- proxies, VPNs, tunnels, the host, neighbouring containers, the cloud's metadata addresses
- sudo, setuid programs, namespaces, or changes to the firewall, the policy or these files
- turning off certificate checks: TLS is not intercepted, so a certificate error is a real one

Package managers work if their registries are listed. If a download fails, look for a mirror above before you ask.
`)
	return b.Flush()
}

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
