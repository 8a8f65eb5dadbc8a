// Package man writes the man pages out of what agent-init --help says.
package man

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
)

// ExitCodes says what each exit code of agent-init itself means.
func ExitCodes() [][2]string {
	return [][2]string{
		{"CMD's own", "of run and exec: the exit code of the command; 128+n if signal n ended it"},
		{fmt.Sprint(fault.Failure), "status: not confined, or not healthy; and what has no code of its own"},
		{fmt.Sprintf("%d, %d, %d", fault.TurnedDown, fault.Denied, fault.Forgotten), "request --wait: it was turned down; what it asks for was denied; nobody decided in a day"},
		{fmt.Sprint(fault.Usage), "the command line is wrong"},
		{fmt.Sprint(fault.SelfTest), "the self-test failed, and the agent was not started; wait: not proved"},
		{fmt.Sprint(fault.Rules), "the kernel refused the rules, or this is not the container's own network"},
		{fmt.Sprint(fault.TimedOut), "request --wait: nobody has decided yet"},
		{fmt.Sprint(fault.Privilege), "a capability is missing, or this is for root"},
		{fmt.Sprint(fault.Policy), "the policy is wrong, or the agent could write it, or replace agent-init"},
		{fmt.Sprintf("%d, %d", fault.NoExec, fault.NotFound), "the command can't be executed; was not found"},
	}
}

var files = [][2]string{
	{"/etc/agent-init/policy.yaml", "settings and entries"},
	{"/etc/agent-init/allowlist.txt", "one entry per line"},
	{"/etc/agent-init/allowlist.d/*.txt, *.yaml", "more of either, in the order of their names"},
	{"/var/lib/agent-init/allowlist.d/granted.txt", "what was allowed and denied for good, by allow --save and deny --save"},
	{"/run/agent-init/", "the published state; README.md in it is for agents"},
	{"/var/log/agent-init/audit.jsonl", "the audit log"},
}

var listed = regexp.MustCompile(`(?m)^  ([a-z]+) `)

// Pages are agent-init(1), and one page for each command. run is agent-init: it returns
// what these words print.
func Pages(run func(words ...string) (string, error)) (map[string]string, error) {
	version, err := run("version")
	if err != nil {
		return nil, err
	}
	version = strings.Fields(version)[1]
	help, err := run("help")
	if err != nil {
		return nil, err
	}
	pages := map[string]string{}
	tagline, _, _ := strings.Cut(strings.TrimPrefix(help, "agent-init: "), "\n")
	var main page
	main.line(".TH AGENT-INIT 1 \"\" \"agent-init %s\"", version)
	main.line(".SH NAME\nagent-init \\- %s", tagline)
	main.line(".SH SYNOPSIS\n.B agent-init\n.I COMMAND\n.RI [ flags ]\n.SH COMMANDS")
	for _, m := range listed.FindAllStringSubmatch(help, -1) {
		text, err := run("help", m[1])
		if err != nil {
			return nil, err
		}
		var summary string
		if pages["agent-init-"+m[1]], summary, err = ofCommand(m[1], version, text); err != nil {
			return nil, err
		}
		main.line(".TP\n.BR agent-init\\-%s (1)\n%s", m[1], summary)
	}
	main.line(".SH EXIT STATUS")
	for _, x := range ExitCodes() {
		main.line(".TP\n.B %s\n%s", x[0], x[1])
	}
	main.line(".SH FILES")
	for _, f := range files {
		main.line(".TP\n.I %s\n%s", f[0], f[1])
	}
	pages["agent-init"] = main.String()
	return pages, nil
}

// ofCommand is the page of a command, by its help.
func ofCommand(name, version, help string) (text, summary string, err error) {
	var p page
	parts := strings.SplitN(help, "\n\n", 3)
	usage, ok := strings.CutPrefix(parts[0], "agent-init "+name)
	if !ok || len(parts) < 2 {
		return "", "", fmt.Errorf("agent-init help %s begins with %q", name, parts[0])
	}
	summary = strings.TrimSpace(parts[1])
	p.line(".TH AGENT-INIT-%s 1 \"\" \"agent-init %s\"", strings.ToUpper(name), version)
	p.line(".SH NAME\nagent-init\\-%s \\- %s", name, summary)
	p.line(".SH SYNOPSIS\n.B agent-init %s\n%s", name, strings.TrimSpace(usage))
	rest := strings.Join(parts[2:], "")
	flags, example, _ := strings.Cut(rest, "Example:\n  ")
	if list, ok := strings.CutPrefix(flags, "Flags:\n"); ok {
		p.line(".SH OPTIONS")
		lines := strings.Split(strings.TrimSpace(list), "\n")
		for i := 0; i+1 < len(lines); i += 2 {
			flag, value, _ := strings.Cut(strings.TrimSpace(lines[i]), " ")
			p.line(".TP\n.BR %s \" \" %s\n%s", flag, value, strings.TrimSpace(lines[i+1]))
		}
	}
	if example != "" {
		p.line(".SH EXAMPLE\n.EX\n%s\n.EE", strings.TrimSpace(example))
	}
	p.line(".SH SEE ALSO\n.BR agent-init (1)")
	return p.String(), summary, nil
}

type page struct{ strings.Builder }

func (p *page) line(format string, words ...string) {
	args := make([]any, len(words))
	for i, w := range words {
		args[i] = Roff(w)
	}
	fmt.Fprintf(p, format+"\n", args...)
}

// Roff escapes what troff would read as its own.
func Roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(s)
	var b strings.Builder
	for _, r := range s {
		if r > '~' {
			fmt.Fprintf(&b, "\\[u%04X]", r)
			continue
		}
		b.WriteRune(r)
	}
	s = b.String()
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	if s == "" {
		return `""`
	}
	return s
}
