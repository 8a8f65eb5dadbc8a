package keeper

import (
	"cmp"
	_ "embed" // of readme.txt
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// readme is what the agent, a program that reads, is told: what it can reach, and what is a waste of its time.
//
//go:embed readme.txt
var readme string

const maxReadmeRules = 200

func writeReadme(w io.Writer, p *policy.Policy, grants []grant.Grant, monitor bool) error {
	var mode string
	if monitor {
		mode = "It runs in monitor mode: what is not listed is let through for now, recorded, and will be denied later.\n\n"
	}
	var rules, granted strings.Builder
	count := 0
	for r := range p.Rules() {
		if count++; count <= maxReadmeRules {
			fmt.Fprintf(&rules, "%-44s # %s\n", r, r.Source)
		}
	}
	if count > maxReadmeRules {
		fmt.Fprintf(&rules, "# and %d more\n", count-maxReadmeRules)
	}
	if count == 0 {
		rules.WriteString("# nothing\n")
	}
	for _, g := range grants {
		if g.Kind == grant.Allow && !g.Saved {
			until := "agent-init ends"
			if !g.Expires.IsZero() {
				until = g.Expires.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(&granted, "- `%s` is allowed until %s.\n", g.Target, until)
		}
	}
	_, err := strings.NewReplacer("%MONITOR%", mode, "%RULES%", rules.String(), "%ROUTES%", routesFor(p.Settings.Broker),
		"%INSPECTED%", inspectedFor(p.Settings), "%GRANTS%", granted.String()).
		WriteString(w, readme)
	return err
}

// routesFor tells the agent of the broker's routes, "" without any.
func routesFor(routes []route.Route) string {
	var b strings.Builder
	for _, r := range routes {
		if r.Inspects != "" {
			continue
		}
		fmt.Fprintf(&b, "- `%s`, for %s", r.Name, r.To)
		for i, name := range slices.Sorted(maps.Keys(r.Env)) {
			b.WriteString([]string{": ", ", "}[min(i, 1)] + "`$" + name + "`")
		}
		b.WriteString(mayAsk(r) + "\n")
	}
	if b.Len() == 0 {
		return ""
	}
	return "## What the broker asks for you\n\nThese APIs have another address here, on loopback. Your environment has it, and a token in place of the key. " +
		"`agent-init\nexplain NAME` says what may be asked:\n\n" + b.String() + "\n"
}

// mayAsk says what of repositories or packages there is: git and installers say little of why something is not there.
func mayAsk(r route.Route) string {
	switch {
	case r.ServesGit():
		return ".\n  git asks it by itself, under the usual addresses: " + r.Git.String()
	case r.Packages.Registry == "":
		return ""
	}
	says := ".\n  Packages can be read, and none can be published"
	if r.Packages.MinAge > 0 {
		says += ". A version that is younger than " + text.Days(r.Packages.MinAge) + " does not\n  exist here, whatever others say: take an older one"
	}
	return says
}

// inspectedFor tells the agent of inspected names, "" without any.
func inspectedFor(s policy.Settings) string {
	if len(s.Inspected) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("A name with methods, `read` or another word about requests behind it is inspected, on 443 alone if it has no port. Of it, only\n" +
		"such requests pass, and others get a 403 that says why: `agent-init explain POST URL` says it before you ask. Its\n" +
		"certificate is of this container's own authority. Programs that take theirs from your environment trust it.\n\n")
	for _, r := range s.Broker {
		for _, name := range slices.Sorted(maps.Keys(r.Env)) {
			if r.Inspects != "" {
				fmt.Fprintf(&b, "- the credential for %s is put on for you, where you show `$%s`\n", r.Inspects, name)
			}
		}
	}
	return strings.TrimSuffix(b.String(), "\n") + "\n\n"
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

// signOfOpen has the agent's shells say so in their prompts: those that take PS1 from the environment, and bash as
// Debian and Ubuntu set it up, which shows debian_chroot.
func signOfOpen(env map[string]string, how string) {
	sign := "NOT CONFINED: " + how
	env["PS1"] = "[" + sign + "] " + cmp.Or(env["PS1"], "$ ")
	env["debian_chroot"] = sign
}
