// Command demo shows agent-init at work on one screen: it builds the lab's
// internet, runs agent-init in it as PID 1 of a container of its own, and lets a
// small "agent" try what it may and what it may not.
//
// It needs root and curl; no container engine, and no internet.
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

//go:embed agent.sh
var agent []byte

const allowlist = `api.anthropic.com required   # the LLM
*.ok.test                    # documentation
`

func main() {
	os.Exit(run())
}

func run() (code int) { return (&demo{agent: agent}).run() }

func (d *demo) run() (code int) {
	defer func() {
		if r := recover(); r != nil && r != errStop {
			panic(r)
		}
		for i := len(d.cleanups) - 1; i >= 0; i-- {
			d.cleanups[i]()
		}
		if len(d.failed) > 0 {
			code = 1
		}
	}()
	if os.Getuid() != 0 {
		d.Fatalf("the demo makes network namespaces, and needs root: sudo make demo")
	}
	d.show()
	return 0
}

func (d *demo) show() {
	began := time.Now()
	l := lab.New(d, lab.Options{})
	l.DNS.SetAddrs("docs.ok.test", "45.30.0.10", "2a0f:30::10")
	l.DNS.SetAddrs("*.evil.test", "45.30.66.6")
	opts := lab.BoxOptions{
		Binary: lab.Binary(d),
		Files: []lab.File{
			{Path: "/etc/agent-init/allowlist.txt", Data: []byte(allowlist)},
			{Path: "/usr/local/bin/demo-agent", Data: d.agent, Mode: 0o755},
		},
		Env: []string{"ANTHROPIC_API_KEY=sk-ant-demo", "AGENT_INIT_LOG_LEVEL=info"},
	}
	_, without := d.tries(l.NewBox(opts), "demo-agent")
	d.possible(without)
	l.DNS.Forget()

	fmt.Printf("The policy, /etc/agent-init/allowlist.txt:\n%s\n", indent(allowlist))
	box := l.NewBox(opts)
	p, confined := d.tries(box, "agent-init", "run", "--", "demo-agent")
	fmt.Println("The container's PID 1 is: agent-init run -- demo-agent")
	fmt.Print(indent(steps(p.Stderr())))
	fmt.Printf("\nThe agent tries %d things. Without agent-init, in the same container, each of them works:\n", len(confined))
	d.judge(without, confined)

	fmt.Println("\nThe audit log, /var/log/agent-init/audit.jsonl, in short:")
	log, err := box.ReadFile("/var/log/agent-init/audit.jsonl")
	if err != nil {
		d.Fatalf("read the audit log: %v", err)
	}
	fmt.Print(indent(events(string(log))))

	fmt.Println("\nThe self-test, run again (agent-init selftest):")
	fmt.Print(indent(box.Exec(lab.Cmd{Args: []string{"agent-init", "selftest"}}).Stdout))

	escaped := box.Packets(lab.Routed, lab.Not(lab.Any(
		lab.ToAddr("45.30.0.1"), lab.ToAddr("2a0f:30::1"), lab.ToAddr("45.30.0.10"), lab.ToAddr("2a0f:30::10"),
		lab.ToAddr(lab.Upstream4.String()), lab.ToAddr(lab.Upstream6.String()))))
	fmt.Printf("\nSeen from the far side of the wire: %d packets to anywhere but the LLM, the documentation and the DNS server;\n"+
		"DNS queries for other names: %d.\n", len(escaped), len(l.Queries("evil.test"))+len(l.Queries("example.com")))
	if len(escaped) > 0 {
		d.Errorf("escaped: %v", escaped)
	}
	fmt.Printf("Done in %.1f s. Everything is removed again.\n", time.Since(began).Seconds())
}

// steps shortens the diagnostics of the start to its steps.
func steps(stderr string) string {
	var b strings.Builder
	for line := range strings.Lines(stderr) {
		if msg, took, ok := strings.Cut(line, " took="); ok && strings.Contains(msg, "level=INFO") {
			_, msg, _ = strings.Cut(msg, "msg=")
			fmt.Fprintf(&b, "%-34s %s", strings.Trim(msg, `"`), took)
		}
	}
	return b.String()
}

// events shortens the audit log, one line each of no more than 78 columns. What the
// self-test tried is left out, as "agent-init log" does.
func events(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		var e struct {
			Event, Verdict, Name, IP, Proto, Reason string
			Rule, By                                string
			Port                                    uint16
		}
		if json.Unmarshal([]byte(line), &e) != nil || e.By == "selftest" {
			continue
		}
		what := e.Event + " " + e.Name
		if e.IP != "" && e.Name == "" {
			what = e.Proto + " " + e.IP
			if e.Port != 0 {
				what = e.Proto + " " + net.JoinHostPort(e.IP, strconv.Itoa(int(e.Port)))
			}
		}
		why := e.Reason
		if e.Rule != "" && e.Verdict == "allow" {
			why = e.Rule
		}
		fmt.Fprintf(&b, "%-5s %-32s %.38s\n", e.Verdict, what, why)
	}
	return b.String()
}

func indent(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString("  " + line)
	}
	return b.String()
}

// demo is the lab's idea of a test.
type demo struct {
	agent    []byte // the script
	cleanups []func()
	failed   []string
}

type stop struct{}

var errStop = stop{}

func (d *demo) Helper()          {}
func (d *demo) Cleanup(f func()) { d.cleanups = append(d.cleanups, f) }
func (d *demo) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
func (d *demo) Errorf(format string, args ...any) {
	d.failed = append(d.failed, fmt.Sprintf(format, args...))
	d.Logf("demo: "+format, args...)
}
func (d *demo) Fatalf(format string, args ...any) {
	d.Errorf(format, args...)
	panic(errStop)
}
