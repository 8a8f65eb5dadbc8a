package main

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab/scorecard"
)

// document is docs/scorecard.md.
func document(columns []scorecard.Column) string {
	return fmt.Sprintf(`# Scorecard

What became of each attack of the [catalogue](../SECURITY.md), tried from inside by the agent and judged by what arrived on
the far side of the container's link. Made by `+"`make scorecard`"+` on %s, with Linux %s; not edited by hand.

- **blocked**: nothing of it arrived, in any of the settings of the column.
- **LEAKS**: something arrived that the policy does not allow.
- **limit**: it is open by its nature, and [listed below](#what-is-open).
- –: not tried there, and why: what *takes minutes* is about leases that outlive a minute, and *needs a helper* is about a module of the kernel
  that follows FTP: the tests that are named have them. Else the place lacks what it takes: an allowed wildcard, the engine's own DNS, agent-init
  in the agent's own container (*not inside*), a way to read its policy again, a log.

An attack may span the start of a container, a restart of it, a change of policy, rules of somebody else's and a shell that comes in from outside.
Where one can't fail in the last column since it is against agent-init's own, it is shown elsewhere that it can: E61 by the script, E15, E74 and E75 by
tests and by taking the defence out.

`+"`run`, `up` and `sidecar`"+` are boxes of the lab, each over nftables, xtables-nft and xtables-legacy. The columns of Docker are `+"`agent-base`"+`
in an engine, the agent being the container's command. The policy allows `+"`api.anthropic.com`"+` and `+"`*.cdn.test`"+`.
The tests that are named try more of each attack; `+"`make test-lab`"+` runs them, also over xtables, and `+"`make test-lab-modes`"+` in the other modes.

%s
(1) A peer for comparison: a script of some forty lines written for this table from the public description of the firewall that the Claude Code
devcontainer starts (default deny, the addresses of a list of names resolved once at the start, DNS and SSH open, the host's network open).
It is not that project's own script. (2) Debian as it comes. A table that could not fail would be worth nothing.

## What is open

%s
## Any image

    make scorecard IMAGE=foo/bar OPTIONS='--cap-add=NET_ADMIN' ALLOWED=api.example.com

takes an image from the local engine, runs it with its own entrypoint and the attacker as its command, in an engine without any
way out and a hostile internet around it, and prints what leaked. `+"`SETUP='command'`"+` and `+"`AGENT=user`"+` are for images that a command confines after
the start; `+"`NETWORK=1`"+` puts it on a user-defined network; `+"`ALLOWED`"+` is a name that its own policy lets the agent reach on port 443, without which the
attacks that ride on one are not tried; `+"`WILDCARD`"+` a zone.
`, today(), kernel(), scorecard.Table(columns), scorecard.Advice())
}

func today() string { return time.Now().Format(time.DateOnly) }

// kernel is the release without what a vendor adds to it.
func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "of an unknown release"
	}
	release, _, _ := strings.Cut(unix.ByteSliceToString(u.Release[:]), "-")
	return release + " on " + strings.TrimSpace(unix.ByteSliceToString(u.Machine[:]))
}
