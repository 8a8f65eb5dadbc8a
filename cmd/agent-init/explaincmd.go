package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
)

func explainCommand() command {
	return command{
		name: "explain", synopsis: "HOST[:PORT]|URL|PORT [--json]", mixed: true,
		summary: "say why something is allowed or denied, and what to do about it",
		example: "agent-init explain https://api.example.com/v1/items",
		flags: func(fs *flag.FlagSet) {
			fs.Bool("json", false, "print the explanation as JSON")
			fs.String("config", "/etc/agent-init", "`DIR` of the policy, where agent-init does not run")
		},
		run: func(_ context.Context, e environment, fs *flag.FlagSet, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, "agent-init explain https://api.example.com/", "explain takes one name, address or URL, and %d were given", len(args))
			}
			s, err := parseSubject(args[0])
			if err != nil {
				return fault.New(fault.Usage, "give HOST, HOST:PORT, a URL, or a PORT of this container", "%w", err)
			}
			p, err := readPublished(value(fs, "config"))
			if err != nil {
				return err
			}
			if s.here {
				return explainHere(e, p, s.port.Number, isSet(fs, "json"))
			}
			now := time.Now()
			x := explainSubject(p, s, now)
			if isSet(fs, "json") {
				return text.JSON(e.stdout, x)
			}
			return x.write(text.Folded(e.stdout, strings.Repeat(" ", 15)), now, colour(e))
		},
	}
}

// write shows the explanation; what it quotes may be the agent's own words.
func (x explanation) write(out io.Writer, now time.Time, coloured bool) error {
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
		w.Row("lease", "%s on %s, opened %s, for %s more", l.Addr, l.On, text.Ago(l.Since), text.Shortly(l.Expires.Sub(now)))
	}
	if x.Allowed && len(x.Leases) == 0 && len(x.Hosts) == 0 && len(x.Ports) > 0 && x.Ports[0].Allowed {
		w.Row("lease", "none: its addresses open when it is looked up")
	}
	switch {
	case x.Unknown != "":
		w.Row("log", "can't be read: %s", x.Unknown)
	case x.Denied.Count > 0:
		w.Row("denied", "%s since %s; the last:", text.Times(x.Denied.Count), text.Moment(x.Denied.First, now))
		for _, e := range x.Denied.Last {
			w.Line("             %s", eventLine(e, now, coloured))
		}
	}
	if x.Request != nil {
		w.Row("asked", "%s", x.Request.Standing())
	}
	if x.ToAllow != nil {
		w.Row("to allow it", "add this line to %s:", x.ToAllow.File)
		w.Line("  %s", x.ToAllow.Line)
		w.Row("for a while", "agent-init allow %s --for 10m    (root)", text.Quoted(x.ToAllow.Line))
		w.Row("to ask", "agent-init request %s --reason …    (the agent)", text.Quoted(x.ToAllow.Line))
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

// explainHere says whether a port of this container is reached from outside.
func explainHere(e environment, p published, port uint16, asJSON bool) error {
	var uid uint32
	if p.state != nil {
		uid = p.state.Agent.UID
	}
	r := explainInbound(port, p.inbound, listeningHere(uid))
	if asJSON {
		return text.JSON(e.stdout, r)
	}
	return r.write(&text.Screen{W: text.Folded(e.stdout, strings.Repeat(" ", 15))}, p.dir)
}

const letOut = "let out"

// verdictColour is the terminal's: green, red, and yellow for what needs a look.
func verdictColour(verdict string) string {
	return map[string]string{string(audit.Allow): "32", string(audit.Deny): "31", string(audit.Fault): "31;1", letOut: "33"}[verdict]
}

// eventLine is an event of the audit log in one line for people.
func eventLine(e audit.Event, now time.Time, coloured bool) string {
	what := text.Clean(e.Name)
	if e.IP != "" {
		at := e.IP
		if e.Port != 0 {
			at = fmt.Sprintf("%s %d/%s", e.IP, e.Port, cmp.Or(e.Proto, "tcp"))
		}
		if what != "" {
			what += " "
		}
		what += text.Clean(at)
	}
	verdict := string(e.Verdict)
	if e.Enforce != "" {
		verdict = letOut // what enforce would not have done
	}
	begin, end := "", ""
	if code := verdictColour(verdict); coloured && code != "" {
		begin, end = "\x1b["+code+"m", "\x1b[0m"
	}
	line := fmt.Sprintf("%s  %s%-7s%s %-8s %-32s %s", text.Moment(e.Time, now), begin, text.Clean(verdict), end, text.Clean(string(e.Kind)), what, text.Clean(e.Reason))
	if e.Out > 0 || e.In > 0 {
		line += fmt.Sprintf(": %s out, %d in, %v", text.Counted(e.Out, "byte", "bytes"), e.In, time.Duration(e.Millis)*time.Millisecond)
	}
	if e.Rule != "" {
		line += " [" + text.Clean(e.Rule) + "]"
	}
	if who := processOf(e); who != "" {
		line += " by " + who
	}
	switch {
	case e.Kind == audit.Guard && strings.HasPrefix(e.Reason, audit.Unwritten):
		line += fmt.Sprintf(" (%d of them)", e.Suppressed)
	case e.Suppressed > 0:
		line += fmt.Sprintf(" (and %d before it)", e.Suppressed)
	}
	return line
}

// processOf is who caused an event, as far as it is known.
func processOf(e audit.Event) string {
	switch {
	case e.Asker == audit.ByGuard:
		return "the guard"
	case e.Asker == audit.BySelfTest:
		return "the self-test"
	case e.Asker == audit.ByOutside:
		return "somebody outside"
	case e.Comm != "":
		return fmt.Sprintf("%s (%d)", text.Clean(e.Comm), e.PID)
	case e.PID != 0 && e.UID != nil:
		return fmt.Sprintf("pid %d, uid %d", e.PID, *e.UID)
	case e.PID != 0:
		return fmt.Sprintf("pid %d", e.PID)
	case e.UID != nil:
		return fmt.Sprintf("uid %d", *e.UID)
	}
	return ""
}
