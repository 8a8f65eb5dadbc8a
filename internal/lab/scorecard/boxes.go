package scorecard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// The policy that boxes of the lab are confined by, and what is allowed by it.
const (
	allowlist    = "api.anthropic.com\n*.cdn.test\n"
	allowedName  = "api.anthropic.com"
	allowedBelow = "cdn.test"
)

// Modes are the ways in which agent-init confines a container.
func Modes() []string { return []string{"run", "up", "sidecar"} }

// Backends are the packet filters that it can do so with.
func Backends() []string { return []string{"nftables", "xtables-nft", "xtables-legacy"} }

// InBox confines a box of a new lab, in one of Modes by one of Backends.
func InBox(tb lab.TB, binary, mode, backend string) *Setting {
	tb.Helper()
	l := lab.New(tb, lab.Options{})
	l.DNS.SetAddrs("*."+allowedBelow, "45.30.0.21", "2a0f:30::21")
	opts := lab.BoxOptions{Binary: binary, NoNewPrivs: true, Caps: lab.DefaultCaps(), Env: []string{"AGENT_INIT_BACKEND=" + backend},
		Files: []lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte(allowlist)}}}
	if backend != "nftables" {
		opts.Caps = append(opts.Caps, "NET_RAW")
	}
	s := &Setting{Name: mode + ", " + backend, Lab: l, Box: l.NewBox(opts), Allowed: allowedName, Wildcard: allowedBelow,
		Resolver: lab.Upstream4, Ours: mode != "sidecar", Starts: mode == "run"}
	var init *lab.Process
	switch mode {
	case "run":
		init = s.Box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "sleep", "infinity"}})
		s.Agent = func(args ...string) (lab.Poke, error) {
			return parse(s.Box.Exec(lab.Cmd{Args: append([]string{"agent-init", "exec", "--", "poke"}, args...), Timeout: time.Minute}))
		}
	case "up":
		init = s.Box.Idle()
		if r := s.Box.Exec(lab.Cmd{Args: []string{"agent-init", "up"}}); r.Code != 0 {
			tb.Fatalf("agent-init up: %s", r)
		}
		s.Agent = asUser(s.Box, lab.AgentUID)
	case "sidecar":
		init = s.Box.Start(lab.Cmd{Args: []string{"agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID)}})
		beside := l.NewBox(lab.BoxOptions{Share: s.Box, Caps: []string{}, NoNewPrivs: true})
		beside.Idle()
		s.Agent = asUser(beside, lab.AgentUID)
	default:
		tb.Fatalf("no such mode: %s", mode)
	}
	if r := s.Box.Exec(lab.Cmd{Args: []string{"agent-init", "wait", "--timeout", "30s"}}); r.Code != 0 {
		tb.Fatalf("%s is not ready: %s\n%s%s", s.Name, r, init.Stdout(), init.Stderr())
	}
	return s
}

// OpenBox is a box that nothing confines, with root and what an engine gives it
// for an agent: there attacks have to succeed.
func OpenBox(tb lab.TB) *Setting {
	tb.Helper()
	l := lab.New(tb, lab.Options{})
	l.DNS.SetAddrs("*."+allowedBelow, "45.30.0.21", "2a0f:30::21")
	dir := engineSocket(tb)
	box := l.NewBox(lab.BoxOptions{DockerDNS: true, Binds: []lab.Bind{{Source: dir, Target: "/run/containerd", Writable: true}}, Caps: []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
		"SETPCAP", "NET_BIND_SERVICE", "NET_RAW", "SYS_CHROOT", "SETFCAP", "NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE"}})
	box.Idle()
	return &Setting{Name: "open", Lab: l, Box: box, Allowed: allowedName, Wildcard: allowedBelow, Resolver: lab.Upstream4,
		EngineDNS: netip.MustParseAddr("127.0.0.11"), Open: true, Agent: asUser(box, 0)}
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
		return parse(b.Exec(lab.Cmd{Args: append([]string{"/usr/local/bin/poke"}, args...), UID: uid, Timeout: time.Minute}))
	}
}

func parse(r lab.Result) (lab.Poke, error) {
	p, err := lab.ParsePoke(r.Stdout)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, r)
	}
	return p, err
}
