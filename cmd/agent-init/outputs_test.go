package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/lab/man"
	"github.com/agent-init/agent-init/internal/launch/cli"
	"github.com/agent-init/agent-init/internal/metric"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// goldenState has something in every field.
func goldenState() state.State {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := state.State{
		Version: 1, Phase: state.PhaseReady, Mode: "run", Started: at, Published: at.Add(time.Hour),
		Firewall: state.Firewall{Backend: "nftables", Verified: at.Add(time.Hour), Repairs: 1},
		Guard: state.Guard{OK: true, UID: 64901, Restarts: 2, Seen: at, Stats: wire.Stats{Queries: 100, Allowed: 90, Denied: 10, Cached: 50, Asked: 40, Failed: 1,
			Stripped: 3, Relays: 4, Passed: 70, Refused: 6, Drops: 8, Leases: 40, LeaseNanos: 12_000_000, AskedNanos: 900_000_000}},
		SelfTest: &state.SelfTest{OK: true, Time: at, Checks: 60, Millis: 400}, Audit: state.Audit{File: "/var/log/agent-init/audit.jsonl", Head: audit.Head{Seq: 17, Hash: strings.Repeat("0123456789abcdef", 4)}},
	}
	s.Keeper.PID, s.Keeper.Start = 1, 42
	s.Agent.User, s.Agent.UID = "agent", 1000
	s.Policy.Counts = policy.Counts{Files: 2, Rules: 9, Names: 5, Wildcards: 2, Addresses: 1, Denied: 1, Required: 1, Direct: 1, Inspected: 2}
	s.Policy.Attempts, s.Policy.Loaded = 3, at
	s.Leases.Names, s.Leases.Elements = 5, 20
	s.Grants.Allowed, s.Grants.Denied, s.Grants.Requests = 1, 2, 3
	s.Broker = state.Broker{OK: true, UID: 64902, Port: 41234, Restarts: 1, Seen: at, Routes: []state.Route{
		{Name: "anthropic", To: "https://api.anthropic.com/", Present: true, Source: "file:/run/secrets/anthropic", Fingerprint: "d9d93430",
			Fault: "/run/secrets/anthropic: it is empty", Requests: 12, Refusals: 3, TokensIn: 5123, TokensOut: 207, LastError: "the API answered 529"},
		{Name: "openai", To: "https://api.openai.com/", Why: "there is no credential at env:OPENAI_API_KEY", ByName: true},
	}}
	return s
}

func TestMetricsGolden(t *testing.T) {
	s := goldenState()
	s.Keeper = state.Self()
	var b strings.Builder
	if err := metric.WriteText(&b, s.Metrics(version, s.Published)); err != nil {
		t.Fatal(err)
	}
	golden.File(t, "metrics.golden.txt", []byte(b.String()))
	line := regexp.MustCompile(`^(# (HELP|TYPE) agent_init_[a-z_]+ .+|agent_init_[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.]+)$`)
	typed := map[string]bool{}
	for sc := bufio.NewScanner(strings.NewReader(b.String())); sc.Scan(); {
		if !line.MatchString(sc.Text()) {
			t.Errorf("not in the format: %s", sc.Text())
		}
		if f := strings.Fields(sc.Text()); f[1] == "TYPE" {
			if typed[f[2]] {
				t.Errorf("%s is there twice", f[2])
			}
			typed[f[2]] = true
		}
	}
}

// TestCompletions: every command and every flag is known to every shell, and
// none that is not for people.
func TestCompletions(t *testing.T) {
	for shell, write := range map[string]func(io.Writer) error{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion} {
		var b strings.Builder
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		for _, c := range commands() {
			if has := regexp.MustCompile(`(^|[^a-z_-])` + c.name + `([^a-z_-]|$)`).MatchString(text); has == (c.group == "") {
				t.Errorf("%s: %s: known: %v", shell, c.name, has)
			}
			if c.group == "" {
				continue
			}
			c.eachFlag(func(name, _, _ string) {
				want := cli.Dashes(name)
				if shell == "fish" {
					want = "-l " + name
					if len(name) == 1 {
						want = "-s " + name
					}
				}
				if !strings.Contains(text, want) {
					t.Errorf("%s: %s %s is not known", shell, c.name, want)
				}
			})
		}
		if strings.Count(strings.ReplaceAll(text, `'"'"'`, ""), "'")%2 != 0 {
			t.Errorf("%s: a quote is open", shell)
		}
	}
}

// TestManPages: one for each command, from what --help says.
func TestManPages(t *testing.T) {
	pages, err := man.Pages(func(words ...string) (string, error) {
		code, out, errs := typed(words...)
		if code != fault.OK {
			return "", errors.New(errs)
		}
		return out, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range visible() {
		page := pages["agent-init-"+c.name]
		wanted := []string{man.Roff(c.summary), man.Roff(c.example)}
		c.flagSet(new(environment)).VisitAll(func(f *flag.Flag) {
			_, usage := flag.UnquoteUsage(f)
			wanted = append(wanted, ".BR "+man.Roff(cli.Dashes(f.Name))+" ", "\n"+man.Roff(usage))
		})
		for _, want := range wanted {
			if !strings.Contains(page, want) {
				t.Errorf("%s: lacks %q", c.name, want)
			}
		}
		if !strings.Contains(pages["agent-init"], "agent-init\\-"+man.Roff(c.name)) {
			t.Errorf("agent-init.1 lacks %s", c.name)
		}
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !regexp.MustCompile(`^\.(TH|SH|TP|B|BR|I|RI|EX|EE)( |$)`).MatchString(strings.TrimSpace(line)) {
				t.Errorf("%s: %q would be a request of troff's", c.name, line)
			}
		}
	}
}

// TestHelp: each command for people has an example, and its summary fits a line.
func TestHelp(t *testing.T) {
	for _, c := range visible() {
		if c.example == "" || len(c.summary) > 90 || c.summary == "" || !strings.HasPrefix(c.example, "agent-init "+c.name) && !strings.Contains(c.example, "agent-init "+c.name) {
			t.Errorf("%s: summary %q, example %q", c.name, c.summary, c.example)
		}
		var b strings.Builder
		fs := c.flagSet(new(environment))
		c.help(&b, fs)
		if !strings.Contains(b.String(), "Example:\n") {
			t.Errorf("%s: no example in --help", c.name)
		}
		fs.VisitAll(func(f *flag.Flag) {
			if f.Usage == "" || strings.Contains(fmt.Sprint(f.Usage), "\n") {
				t.Errorf("%s --%s: %q", c.name, f.Name, f.Usage)
			}
		})
	}
}
