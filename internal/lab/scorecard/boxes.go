package scorecard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
)

// The policy that boxes of the lab are confined by, and what is allowed by it.
const (
	allowlist    = "api.anthropic.com\n*.cdn.test\n"
	allowedName  = "api.anthropic.com"
	allowedBelow = "cdn.test"

	allowlistFile = "/etc/agent-init/allowlist.txt"
	policyFile    = "/etc/agent-init/policy.yaml"
)

// Modes are the ways in which agent-init confines a container.
func Modes() []string { return []string{"run", "up", "sidecar"} }

// Backends are the packet filters that it can do so with.
func Backends() []string { return []string{"nftables", "xtables-legacy"} }

// path has programs of the agent's before the system's. agent-init does not start
// where they come before itself: that is X28.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/workspace/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// InBox confines a box of a new lab, in one of Modes by one of Backends.
func InBox(tb lab.TB, binary, mode, backend string) *Setting {
	tb.Helper()
	l := newLab(tb)
	shared, told := workspace(tb), directory(tb, "env", "/run/agent-env")
	opts := lab.BoxOptions{Binary: binary, NoNewPrivs: true, Caps: lab.DefaultCaps(), Env: []string{"AGENT_INIT_BACKEND=" + backend, path},
		Binds: []lab.Bind{shared, told}, Files: []lab.File{{Path: allowlistFile, Data: []byte(allowlist)}, {Path: policyFile, Data: []byte(Brokered() + Ruled())}}}
	for _, r := range Routes() {
		if r == filed || mode == "up" { // where the agent has the container's variables
			opts.Files = append(opts.Files, lab.File{Path: secrets + "/" + r, Data: []byte(Key(r) + "\n"), Mode: 0o600})
		}
	}
	if mode != "up" {
		opts.Env = append(opts.Env, keyVariables()...)
	}
	if backend != "nftables" {
		opts.Caps = append(opts.Caps, "NET_RAW")
	}
	s := &Setting{Name: mode + ", " + backend, Lab: l, Box: l.NewBox(opts), Allowed: allowedName, Wildcard: allowedBelow,
		Resolver: lab.Upstream4, Ours: mode != "sidecar", Starts: mode == "run", Guarded: true, Backend: backend, Workspace: shared.Target, Keys: true, Rules: true}
	root := func(args ...string) error {
		if r := s.Box.Exec(lab.Cmd{Args: args}); r.Code != 0 {
			return fmt.Errorf("%s: %v: %s", s.Name, args, r)
		}
		return nil
	}
	boot := func() error { return nil }
	s.Enter = asUser(s.Box, lab.AgentUID)
	switch mode {
	case "run":
		boot = func() error {
			s.Box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "sleep", "infinity"}})
			return nil
		}
		s.Agent = func(args ...string) (lab.Poke, error) {
			return parse(s.Box.Exec(lab.Cmd{Args: append([]string{"agent-init", "exec", "--", "poke"}, args...)}))
		}
		s.Fresh = freshBox(l, opts, "agent-init", "run", "--")
	case "up":
		boot = func() error {
			s.Box.Idle()
			return root("agent-init", "up")
		}
		s.Agent = s.Enter
	case "sidecar":
		beside := l.NewBox(lab.BoxOptions{Share: s.Box, Caps: []string{}, NoNewPrivs: true, Binds: []lab.Bind{shared, {Source: told.Source, Target: told.Target}}, Env: []string{path}})
		boot = func() error {
			beside.Kill()
			s.Box.Start(lab.Cmd{Args: []string{"agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID), "--env-file", told.Target + "/broker.env"}})
			beside.Idle()
			return nil
		}
		s.Agent = asUser(beside, lab.AgentUID)
		s.Enter = nil
	default:
		tb.Fatalf("no such mode: %s", mode)
	}
	start := func() error {
		return errors.Join(boot(), root("agent-init", "wait", "--timeout", "30s"))
	}
	s.Restart = func() error {
		s.Box.Kill()
		return start()
	}
	s.Reload = func(list string) error {
		return errors.Join(s.Box.WriteFile(allowlistFile, []byte(list), 0o644), root("agent-init", "reload"))
	}
	s.Log = func() (string, error) {
		data, err := s.Box.ReadFile("/var/log/agent-init/audit.jsonl")
		return string(data), err
	}
	if err := start(); err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

func newLab(tb lab.TB) *lab.Lab {
	tb.Helper()
	l := lab.New(tb, lab.Options{})
	l.DNS.SetAddrs("*."+allowedBelow, "45.30.0.21", "2a0f:30::21")
	l.DNS.SetAddrs(ruled, ruledAddrs...)
	for i, r := range Routes() {
		l.DNS.SetAddrs(Provider(r), fmt.Sprintf("45.34.0.%d", i+1), fmt.Sprintf("2a0f:34::%d", i+1))
	}
	return l
}

// workspace is a directory of the agent's that outlives its containers.
func workspace(tb lab.TB) lab.Bind {
	tb.Helper()
	b := directory(tb, "workspace", "/workspace")
	if err := os.Chown(b.Source, lab.AgentUID, lab.AgentUID); err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	return b
}

// directory is one of root's that is mounted at a place.
func directory(tb lab.TB, what, at string) lab.Bind {
	tb.Helper()
	dir, err := os.MkdirTemp("", "agent-init-lab-"+what+"-")
	if err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("scorecard: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	return lab.Bind{Source: dir, Target: at, Writable: true}
}

// freshBox starts one box after another, by a command that starts an operation.
func freshBox(l *lab.Lab, opts lab.BoxOptions, start ...string) func([]string, ...string) (lab.Poke, bool, error) {
	return func(change []string, args ...string) (p lab.Poke, ran bool, err error) {
		opts := opts
		opts.Caps, opts.Env = slices.Clone(opts.Caps), slices.Clone(opts.Env)
		for _, c := range change {
			if name, is := strings.CutPrefix(c, "--cap-add="); is {
				opts.Caps = slices.DeleteFunc(opts.Caps, func(other string) bool { return other == name })
			} else if server, is := strings.CutPrefix(c, "+--dns="); is {
				opts.Resolv, opts.DockerDNS = "nameserver "+server+"\n", false
			} else if v, is := strings.CutPrefix(c, "+"); is && v != "-e" {
				key, _, _ := strings.Cut(v, "=")
				opts.Env = slices.DeleteFunc(opts.Env, func(other string) bool { return strings.HasPrefix(other, key+"=") })
				opts.Env = append(opts.Env, v)
			}
		}
		box := l.NewBox(opts)
		r := box.Run(lab.Cmd{Args: slices.Concat(start, []string{"poke"}, args)})
		p, bad := lab.ParsePoke(r.Stdout)
		if bad == nil {
			return p, true, nil
		}
		if r.TimedOut || r.Code == 0 {
			return p, false, fmt.Errorf("neither refused nor started: %s", r)
		}
		return p, false, nil
	}
}

// OpenBox is a box that nothing confines, with root and what an engine gives it
// for an agent: there attacks have to succeed.
func OpenBox(tb lab.TB) *Setting {
	tb.Helper()
	l := newLab(tb)
	shared := workspace(tb)
	dir := engineSocket(tb)
	opts := lab.BoxOptions{DockerDNS: true, Env: append(keyVariables(), path), Files: []lab.File{{Path: secrets + "/" + filed, Data: []byte(Key(filed) + "\n")}}, Binds: []lab.Bind{shared, {Source: dir, Target: "/run/containerd", Writable: true}},
		Caps: []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
			"SETPCAP", "NET_BIND_SERVICE", "NET_RAW", "SYS_CHROOT", "SETFCAP", "NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE"}}
	box := l.NewBox(opts)
	box.Idle()
	s := &Setting{Name: "open", Lab: l, Box: box, Allowed: allowedName, Wildcard: allowedBelow, Resolver: lab.Upstream4,
		EngineDNS: netip.MustParseAddr("127.0.0.11"), Open: true, Agent: asUser(box, 0), Workspace: shared.Target, Keys: true, Rules: true}
	s.Enter, s.Fresh = s.Agent, freshBox(l, opts)
	s.Restart = func() error {
		box.Kill()
		box.Idle()
		return nil
	}
	return s
}

// engineSocket is a directory with the socket of an engine, as people mount it.
func engineSocket(tb lab.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "agent-init-lab-engine-")
	if err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "containerd.sock"))
	if err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(l.Close(), os.RemoveAll(dir)); err != nil {
			tb.Errorf("scorecard: %v", err)
		}
	})
	return dir
}

func asUser(b *lab.Box, uid uint32) func(...string) (lab.Poke, error) {
	return func(args ...string) (lab.Poke, error) {
		r, err := b.TryExec(lab.Cmd{Args: append([]string{"/usr/local/bin/poke"}, args...), UID: uid})
		if err != nil {
			return lab.Poke{}, err
		}
		return parse(r)
	}
}

func parse(r lab.Result) (lab.Poke, error) {
	p, err := lab.ParsePoke(r.Stdout)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, r)
	}
	return p, err
}
