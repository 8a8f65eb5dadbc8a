package inspect

import (
	"io"
	"strings"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
)

// Write shows the explanation; what it quotes may be the agent's own words.
func (x explanation) Write(out io.Writer, coloured bool) error {
	w := &text.Screen{W: out}
	green, red, plain := "", "", ""
	if coloured {
		green, red, plain = "\x1b[32m", "\x1b[31m", "\x1b[0m"
	}
	if what := state.UnlessConfined[x.State]; what != "" {
		w.Line("%s%s%s", red, what, plain)
	}
	for _, v := range x.Ports {
		verdict := red + "denied" + plain
		if v.Allowed {
			verdict = green + "allowed" + plain
		}
		if v.Allowed && v.Rule != "" { // which says why
			w.Line("%s %s: %s", text.Clean(x.Target), v.Port, verdict)
		} else {
			w.Line("%s %s: %s, %s", text.Clean(x.Target), v.Port, verdict, v.Reason)
		}
		if v.Rule != "" {
			rule := v.Rule + "  " + v.Text
			if v.Preset != "" {
				rule += "  (@" + v.Preset + ")"
			}
			w.Row("rule", "%s", rule)
		}
		if v.Gate != "" {
			w.Row("checked", "%s", v.Gate)
		}
	}
	if x.Monitor && !x.Allowed {
		w.Row("MONITOR", "it is let through all the same, and logged; --mode enforce would deny it")
	}
	for _, a := range x.Hosts {
		w.Row("hosts", "%s, from the hosts file", a)
	}
	for _, l := range x.Leases {
		w.Row("lease", "%s on %s, opened %s, for %s more", l.Addr, l.On, text.Ago(l.Since), text.Shortly(l.Expires.Sub(x.now)))
	}
	if x.Allowed && len(x.Leases) == 0 && len(x.Hosts) == 0 && len(x.Ports) > 0 && x.Ports[0].Allowed {
		w.Row("lease", "none: its addresses open when it is looked up")
	}
	switch {
	case x.Unknown != "":
		w.Row("log", "can't be read: %s", x.Unknown)
	case x.Denied.Count > 0:
		w.Row("denied", "%s since %s; the last:", text.Times(x.Denied.Count), text.Moment(x.Denied.First, x.now))
		for _, e := range x.Denied.Last {
			w.Line("             %s", eventLine(e, x.now, coloured))
		}
	}
	if x.Request != nil {
		w.Row("asked", "%s", x.Request.Standing())
	}
	if x.ToAllow != nil {
		w.Row("to allow it", "add this line to %s:", x.ToAllow.File)
		w.Line("  %s", x.ToAllow.Line)
		w.Row("for a while", "agent-init allow %s --for 10m    (root)", quoted(x.ToAllow.Line))
		w.Row("to ask", "agent-init request %s --reason …    (the agent)", quoted(x.ToAllow.Line))
	} else if !x.Allowed {
		w.Row("to allow it", "%s", x.way())
	}
	return w.Err
}

// way is what to do where no entry would help.
func (x explanation) way() string {
	for _, v := range x.Ports {
		if !v.Allowed && v.Rule != "" {
			return "take out what denies it, at " + v.Rule
		}
	}
	return "nothing does: it is never allowed"
}

// quoted is an entry as a word of a shell's.
func quoted(line string) string {
	if strings.ContainsAny(line, " *[") {
		return "'" + line + "'"
	}
	return line
}
