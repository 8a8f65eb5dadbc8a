package process

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// refusedWith is refused with whatever code and texts.
func refusedWith(t *testing.T, r lab.Result) {
	t.Helper()
	rig.Refused(t, r, r.Code)
}

func without(caps ...string) []string {
	return slices.DeleteFunc(lab.DefaultCaps(), func(c string) bool { return slices.Contains(caps, c) })
}

// TestRefusals: every way in which a start fails, with the exit code that the
// README gives, one line of cause, one of remedy, and no agent.
func TestRefusals(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("self.test", "45.30.7.7")
	l.DNS.SetAddrs("private.test", "10.9.9.9")
	l.DNS.SetAddrs("null.test", "0.0.0.0")
	policy := func(text string) []lab.File {
		return []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte(text)}}
	}
	agents := lab.File{Path: "/etc/agent-init/allowlist.txt", Data: []byte("evil.test\n"), UID: lab.AgentUID, GID: lab.AgentUID}
	for name, c := range map[string]struct {
		opts  lab.BoxOptions
		list  string
		uid   uint32
		flags []string
		cmd   []string // besides the canary
		code  int
		says  []string
	}{
		"no NET_ADMIN":          {opts: lab.BoxOptions{Caps: without("NET_ADMIN")}, code: 77, says: []string{"NET_ADMIN", "--cap-add=NET_ADMIN"}},
		"no SETPCAP":            {opts: lab.BoxOptions{Caps: without("SETPCAP")}, code: 77, says: []string{"SETPCAP"}},
		"no SETUID":             {opts: lab.BoxOptions{Caps: without("SETUID")}, code: 77, says: []string{"SETUID"}},
		"no SETGID":             {opts: lab.BoxOptions{Caps: without("SETGID")}, code: 77, says: []string{"SETGID"}},
		"no capability":         {opts: lab.BoxOptions{Caps: []string{}}, code: 77, says: []string{"missing", "NET_ADMIN", "SETUID", "SETGID", "SETPCAP", "--cap-add=NET_ADMIN --cap-add=SETUID --cap-add=SETGID --cap-add=SETPCAP"}},
		"not root":              {uid: lab.AgentUID, code: 77, says: []string{"needs root", "uid 1000"}},
		"no SETPCAP, open":      {opts: lab.BoxOptions{Caps: without("SETPCAP")}, flags: []string{"--unsafe-no-firewall"}, code: 77, says: []string{"SETPCAP"}},
		"not root, open":        {uid: lab.AgentUID, flags: []string{"--unsafe-no-firewall"}, code: 77, says: []string{"needs root"}},
		"bad entries":           {list: "*.com\nhttps://x.test/\nok.test\n10.0.0.300\n", code: 78, says: []string{"allowlist.txt:1:", "allowlist.txt:2:", "allowlist.txt:4:"}},
		"bad yaml":              {opts: lab.BoxOptions{Files: policy("domain: [ok.test]\nnetworks: 5\n")}, code: 78, says: []string{"policy.yaml:1:1:", "domains?", "policy.yaml:2:"}},
		"bad upstream":          {opts: lab.BoxOptions{Files: policy("dns: {upstream: [not an address]}\n")}, code: 78, says: []string{"policy.yaml:1:"}},
		"the agent's policy":    {opts: lab.BoxOptions{Files: []lab.File{agents}}, code: 78, says: []string{"/etc/agent-init/allowlist.txt", "1000"}},
		"everybody's policy":    {opts: lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/allowlist.txt", Mode: 0o666}}}, code: 78, says: []string{"/etc/agent-init/allowlist.txt", "0666"}},
		"a group's policy":      {opts: lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init/allowlist.txt", Mode: 0o664, GID: lab.AgentUID}}}, code: 78, says: []string{"/etc/agent-init/allowlist.txt", "group"}},
		"everybody's directory": {opts: lab.BoxOptions{Files: []lab.File{{Path: "/etc/agent-init", Dir: true, Mode: 0o777}}}, code: 78, says: []string{"/etc/agent-init", "0777"}},
		"a policy by a link":    {opts: lab.BoxOptions{Files: []lab.File{{Path: "/workspace/list", Data: []byte("evil.test\n")}, {Path: "/etc/agent-init/allowlist.txt", Link: "/workspace/list"}}}, code: 78, says: []string{"/workspace"}},
		"the workspace":         {flags: []string{"--config", "/workspace"}, opts: lab.BoxOptions{Files: []lab.File{{Path: "/workspace/allowlist.txt", Data: []byte("evil.test\n")}}}, code: 78, says: []string{"/workspace"}},
		"a relative policy":     {flags: []string{"--config", "etc/agent-init"}, code: 78, says: []string{"absolute"}},
		"a required name fails": {list: "missing.test required\n", code: 70, says: []string{"missing.test:443", "does not exist", "NXDOMAIN"}},
		"required, private":     {list: "private.test required\n", code: 70, says: []string{"private.test:443", "a private address: add the word private to the entry to allow it (10.9.9.9)"}},
		"required, no address":  {list: "null.test required\n", code: 70, says: []string{"null.test:443", "(0.0.0.0)"}},
		"required, wrong CA":    {list: "ok.test required\n", opts: lab.BoxOptions{Files: []lab.File{{Path: "/etc/ssl/certs/ca-certificates.crt", Data: nil}}, Env: []string{"SSL_CERT_DIR=/nonexistent"}}, code: 70, says: []string{"ok.test:443", "certificate"}},
		"a route, no key":       {opts: lab.BoxOptions{Files: policy("broker:\n  anthropic: {}\n")}, code: 78, says: []string{"policy.yaml:2:3: there is no credential at file:/run/secrets/anthropic, env:ANTHROPIC_API_KEY", "optional: true", "docker run -e"}},
		"a readable key":        {opts: lab.BoxOptions{Files: append(policy("broker:\n  anthropic: {optional: true}\n"), lab.File{Path: "/run/secrets/anthropic", Data: []byte("sk-ant-canary"), Mode: 0o444})}, code: 78, says: []string{"policy.yaml:2:3:", "/run/secrets/anthropic", "others than root can read it (mode 0444)", "chmod 400"}},
		"the agent's key":       {opts: lab.BoxOptions{Files: append(policy("broker:\n  anthropic: {}\n"), lab.File{Path: "/run/secrets/anthropic", Data: []byte("sk-ant-canary"), Mode: 0o400, UID: lab.AgentUID})}, code: 78, says: []string{"policy.yaml:2:3:", "belongs to uid 1000"}},
		"an empty key":          {opts: lab.BoxOptions{Files: append(policy("broker:\n  anthropic: {}\n"), lab.File{Path: "/run/secrets/anthropic", Data: []byte("\n"), Mode: 0o400})}, code: 78, says: []string{"policy.yaml:2:3:", "it is empty"}},
		"two keys in one":       {opts: lab.BoxOptions{Files: policy("broker:\n  anthropic: {}\n"), Env: []string{"ANTHROPIC_API_KEY=sk-ant-a\nsk-ant-b"}}, code: 78, says: []string{"policy.yaml:2:3:", "the variable ANTHROPIC_API_KEY", "several lines"}},
		"a route on the list":   {list: "*.anthropic.com\n", opts: lab.BoxOptions{Files: policy("broker:\n  anthropic: {}\n"), Env: []string{"ANTHROPIC_API_KEY=sk-ant-canary"}}, code: 78, says: []string{"allowlist.txt:1:", "policy.yaml:2", "unbrokered"}},
		"an unknown route":      {opts: lab.BoxOptions{Files: policy("broker:\n  antropic: {}\n")}, code: 78, says: []string{"policy.yaml:2:3:", "did you mean anthropic?"}},
		"a route, no CA":        {opts: lab.BoxOptions{Files: policy("broker:\n  anthropic: {}\n"), Env: []string{"ANTHROPIC_API_KEY=sk-ant-canary", "SSL_CERT_FILE=/nonexistent/bundle"}}, code: 78, says: []string{"no certificate authorities (/nonexistent/bundle)", "ca-certificates"}},
		"a route, open":         {opts: lab.BoxOptions{Files: policy("broker:\n  anthropic: {}\n"), Env: []string{"ANTHROPIC_API_KEY=sk-ant-canary"}}, flags: []string{"--unsafe-no-firewall"}, code: 78, says: []string{"policy.yaml:2:3: there is no broker with --unsafe-no-firewall"}},
		"reach fails":           {opts: lab.BoxOptions{Files: policy("selftest: {reach: [\"ok.test:443\"]}\n")}, code: 70, says: []string{"ok.test:443"}},
		"block fails":           {list: "ok.test\n", opts: lab.BoxOptions{Files: policy("selftest: {block: [\"ok.test:443\"]}\n")}, code: 70, says: []string{"ok.test:443"}},
		"command not found":     {cmd: []string{"no-such-command"}, code: 127, says: []string{"no-such-command"}},
		"command in no PATH":    {cmd: []string{"/no/such/command"}, code: 127, says: []string{"/no/such/command"}},
		"not executable":        {cmd: []string{"/etc/hosts"}, code: 126, says: []string{"/etc/hosts"}},
		"a directory":           {cmd: []string{"/etc"}, code: 126, says: []string{"/etc"}},
		"root's alone":          {cmd: []string{"/root/tool"}, opts: lab.BoxOptions{Files: []lab.File{{Path: "/root/tool", Data: []byte("#!/bin/sh\n"), Mode: 0o755}}}, code: 126, says: []string{"/root/tool"}},
		"an unknown flag":       {flags: []string{"--no-such-flag"}, code: 64, says: []string{"no-such-flag"}},
		"an unknown mode":       {flags: []string{"--selftest", "maybe"}, code: 64, says: []string{"maybe", "require warn off"}},
		"an unknown backend":    {flags: []string{"--backend", "ebtables"}, code: 64, says: []string{"ebtables"}},
		"an unknown variable":   {opts: lab.BoxOptions{Env: []string{"AGENT_INIT_SELFTEST=no"}}, code: 64, says: []string{"no"}},
		"a misspelt variable":   {opts: lab.BoxOptions{Env: []string{"AGENT_INIT_SELFTST=warn"}}, code: 64, says: []string{"AGENT_INIT_SELFTST", "did you mean AGENT_INIT_SELFTEST?"}},
		"somebody's variable":   {opts: lab.BoxOptions{Env: []string{"AGENT_INIT_TOKEN=secret"}}, code: 64, says: []string{"AGENT_INIT_TOKEN is no setting", "unset it"}},
		"no port by variable":   {opts: lab.BoxOptions{Env: []string{"AGENT_INIT_INBOUND=3000,x"}}, code: 64, says: []string{"AGENT_INIT_INBOUND", "a port is one number"}},
		"an open wildcard":      {flags: []string{"--allow", "*.com"}, code: 64, says: []string{"--allow:1"}},
		"allowed to be denied":  {flags: []string{"--allow", "!a.test"}, code: 64, says: []string{"allow", "file of the policy"}},
		"a variable's nonsense": {opts: lab.BoxOptions{Env: []string{"AGENT_INIT_UNSAFE_NO_FIREWALL=perhaps"}}, code: 64, says: []string{"AGENT_INIT_UNSAFE_NO_FIREWALL"}},
		"an unknown user":       {flags: []string{"--user", "nobody-here"}, code: 64, says: []string{"nobody-here"}},
		"root as the user":      {flags: []string{"--user", "root"}, code: 64, says: []string{"uid 0"}},
		"0 as the user":         {flags: []string{"--user", "0:0"}, code: 64, says: []string{"uid 0"}},
		"root's group":          {flags: []string{"--user", "1000:0"}, code: 64, says: []string{"group 0"}},
		"root by the policy":    {opts: lab.BoxOptions{Files: policy("user: root\n")}, code: 64, says: []string{"uid 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			bind, cmd, ran := rig.Canary(t)
			if len(c.cmd) > 0 {
				cmd = c.cmd
			}
			opts := c.opts
			opts.Binary = lab.Binary(t)
			opts.Binds = append(opts.Binds, bind)
			opts.Files = append([]lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte(c.list)}}, opts.Files...)
			w := &rig.World{T: t, Lab: l, Box: l.NewBox(opts)}
			args := append(append([]string{"agent-init", "run"}, c.flags...), "--")
			r := w.Box.Run(lab.Cmd{Args: append(args, cmd...), UID: c.uid})
			rig.Refused(t, r, c.code, c.says...)
			if ran() {
				t.Error("the agent ran")
			}
			w.UpstreamOnlyOr("ok.test")
			if c.code == 70 || c.code == 126 || c.code == 127 {
				shut(w)
			}
		})
	}
}

var _ = rig.Also(TestRefusalNetwork, rig.OverXtables)

// TestRefusalNetwork: a network namespace that is somebody else's is left as
// it was.
func TestRefusalNetwork(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	chain := func(name string) func(*lab.Box) error {
		return func(b *lab.Box) error {
			return b.Net.Do(func() error {
				c, err := nftables.New()
				if err != nil {
					return err
				}
				c.AddChain(&nftables.Chain{Name: name, Table: c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "filter"})})
				return c.Flush()
			})
		}
	}
	for name, c := range map[string]struct {
		prepare func(*lab.Box) error
		args    []string
		says    string
	}{
		"a bridge": {prepare: func(b *lab.Box) error {
			return b.Net.Do(func() error {
				return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "docker0"}})
			})
		}, says: "docker0"},
		"an engine's chain":    {prepare: chain("DOCKER-USER"), says: "DOCKER-USER"},
		"an engine's chain up": {prepare: chain("KUBE-FORWARD"), says: "KUBE-FORWARD", args: []string{"agent-init", "sidecar"}},
		"another's listener": {prepare: func(b *lab.Box) error {
			ln, err := b.Net.Listen("tcp", "0.0.0.0:8080")
			if err == nil {
				t.Cleanup(func() { ln.Close() })
			}
			return err
		}, says: "8080"},
	} {
		t.Run(name, func(t *testing.T) {
			bind, cmd, ran := rig.Canary(t)
			w := &rig.World{T: t, Lab: l, Box: l.NewBox(lab.BoxOptions{Binary: lab.Binary(t), Binds: []lab.Bind{bind}})}
			rig.Must(t, c.prepare(w.Box))
			before := rig.Rules(t, w.Box)
			args := c.args
			if args == nil {
				args = append([]string{"agent-init", "run", "--"}, cmd...)
			}
			rig.Refused(t, w.Box.Run(lab.Cmd{Args: args}), 71, c.says)
			if ran() {
				t.Error("the agent ran")
			}
			rig.SameRules(t, name, before, rig.Rules(t, w.Box))
		})
	}
	t.Run("a second agent-init", func(t *testing.T) {
		w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity")
		w.Ready()
		before := unchangedIn(w)
		for _, args := range [][]string{{"run", "--", "echo", "started"}, {"sidecar"}} {
			rig.Refused(t, w.Root(append([]string{"agent-init"}, args...)...), 71)
		}
		same(w, before)
	})
}

// TestRefusalStatus: how an agent that did run has ended.
func TestRefusalStatus(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for script, code := range map[string]int{
		"exit 0": 0, "exit 3": 3, "exit 255": 255, "kill -KILL $$": 137, "kill -SEGV $$": 139, "kill -TERM $$": 143, "kill -ABRT $$": 134,
	} {
		w := rig.StartIn(t, l, "", lab.BoxOptions{}, "agent-init", "run", "--", "sh", "-c", script)
		if r := w.Agent.Wait(0); r.Code != code {
			t.Errorf("%s: ended with %d, want %d: %s", script, r.Code, code, r)
		}
	}
}

// TestRefusalUnsafe: --unsafe-no-firewall is the only way to an open
// network. It is loud, and drops privileges all the same.
func TestRefusalUnsafe(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{Caps: without("NET_ADMIN")}, "agent-init", "run", "--unsafe-no-firewall", "--", "sh", "-c", "poke self; exec sleep infinity")
	if !w.Agent.WaitOutput("\"op\":\"self\"", 10*time.Second) {
		t.Fatalf("did not start: %s%s", w.Agent.Stdout(), w.Agent.Stderr())
	}
	p, err := lab.ParsePoke(w.Agent.Stdout())
	rig.Must(t, err)
	powerless(t, "the agent", p)
	if !strings.Contains(w.Agent.Stderr(), "THE NETWORK IS OPEN") {
		t.Errorf("not loud: %s", w.Agent.Stderr())
	}
	w.Works("tcp", "1.1.1.1:443")
	s, code := w.Status()
	if code == 0 || !strings.Contains(fmt.Sprint(s["why"]), "NOT CONFINED") {
		t.Errorf("the status is %d: %v", code, s["why"])
	}
	if r := w.Root("agent-init", "wait", "--timeout", "5s"); r.Code != 70 {
		t.Errorf("wait: %s", r)
	}
	w.Audited("that nothing is confined", func(e rig.Event) bool { return strings.Contains(e.Reason, "NOT CONFINED") })
}

// TestRefusalSelfTest: what --selftest does to a failure. The rules are there
// in any case.
func TestRefusalSelfTest(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for mode, says := range map[string]string{"warn": "missing.test", "off": "nothing was proved"} {
		w := rig.StartIn(t, l, "missing.test required\nok.test\n", lab.BoxOptions{}, "agent-init", "run", "--selftest", mode, "--", "sh", "-c", "echo started; exec sleep infinity")
		if !w.Agent.WaitOutput("started", 20*time.Second) {
			t.Fatalf("%s: did not start: %s", mode, w.Agent.Stderr())
		}
		if !w.Agent.WaitOutput(says, 0) { // it was said before, through another pipe
			t.Errorf("%s: does not say %q: %s", mode, says, w.Agent.Stderr())
		}
		w.Works("http", "https://ok.test/")
		w.Blocked("tcp", "1.1.1.1:443")
		if s, code := w.Status(); mode == "warn" && code == 0 {
			t.Errorf("healthy with a failed self-test: %v", s)
		}
	}
}

// TestRefusalNoIPv6: a container without IPv6 is no reason to refuse.
func TestRefusalNoIPv6(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{NoIPv6: true})
	w.Works("http", "https://ok.test/")
	w.Blocked("tcp", "1.1.1.1:443")
	w.Blocked("tcp", "[2606:4700:4700::1111]:443")
	w.UpstreamOnlyOr("ok.test")
}
