package scorecard

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/netns"
)

// dockerCaps are those that Docker gives by default.
func dockerCaps() []string {
	return strings.Fields("CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE")
}

// told is where a gateway's agent is told of the broker.
const told = "/run/agent-env"

// gatewayCommand starts a gateway for the agents of a network.
func gatewayCommand(inside, answer string) []string {
	return []string{"gateway", "--inside", inside, "--answer", answer, "--env-file", told + "/broker.env"}
}

// Behind is an agent behind a gateway, in a new lab: root in a box of its own, with what Docker gives. The gateway is its
// route.
func Behind(tb lab.TB, binary string) *Setting {
	tb.Helper()
	l := newLab(tb)
	shared, env := workspace(tb), directory(tb, "env", told)
	gate := l.NewBox(lab.BoxOptions{Gateway: true, Forwards: true, Binary: binary, NoNewPrivs: true, Env: keyVariables(), Binds: []lab.Bind{env},
		Files: []lab.File{{Path: allowlistFile, Data: []byte(allowlist)}, {Path: policyFile, Data: []byte(Brokered() + Ruled())},
			{Path: secrets + "/" + filed, Data: []byte(Key(filed) + "\n"), Mode: 0o600}}})
	agent := l.NewBox(lab.BoxOptions{Behind: gate, Caps: dockerCaps(), Binds: []lab.Bind{shared, {Source: env.Source, Target: env.Target}}, Env: []string{path}})
	agent.Idle()
	s := &Setting{Name: "gateway, as a route", Lab: l, Box: gate, Allowed: allowedName, Wildcard: allowedBelow, Resolver: gate.Inside4(),
		Guarded: true, Backend: "nftables", Workspace: shared.Target, Keys: true, Rules: true, Apart: true}
	root := func(args ...string) error {
		if r := gate.Exec(lab.Cmd{Args: args}); r.Code != 0 {
			return fmt.Errorf("%s: %v: %s", s.Name, args, r)
		}
		return nil
	}
	start := func() error {
		gate.Start(lab.Cmd{Args: append([]string{"agent-init"}, gatewayCommand("eth1", "real")...)})
		return root("agent-init", "wait", "--timeout", "30s")
	}
	s.Agent = asUser(agent, 0)
	s.Enter = s.Agent
	s.Restart = func() error {
		gate.Kill()
		return start()
	}
	s.Reload = func(list string) error {
		return errors.Join(gate.WriteFile(allowlistFile, []byte(list), 0o644), root("agent-init", "reload"))
	}
	s.Log = func() (string, error) {
		data, err := gate.ReadFile("/var/log/agent-init/audit.jsonl")
		return string(data), err
	}
	if err := start(); err != nil {
		tb.Fatalf("%v", err)
	}
	mine, merr := hardware(agent.Net, "eth0")
	hop, herr := hardware(gate.Net, "eth1")
	if err := errors.Join(merr, herr); err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	s.Frames = func(dst netip.Addr) string {
		src := agent.Addr4()
		if dst.Is6() {
			src = agent.Addr6()
		}
		return datagram(hop, mine, src, dst)
	}
	return s
}

// hardware is the address of a link.
func hardware(ns *netns.NS, name string) (mac net.HardwareAddr, err error) {
	err = ns.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	})
	return mac, err
}

// datagram is a frame with a UDP datagram to port 443.
func datagram(to, from net.HardwareAddr, src, dst netip.Addr) string {
	udp := []byte{0x10, 0, 0x01, 0xbb, 0, 12, 0, 0, 'l', 'e', 'a', 'k'}
	pseudo := slices.Concat(src.AsSlice(), dst.AsSlice(), []byte{0, unix.IPPROTO_UDP, 0, byte(len(udp))}, udp)
	binary.BigEndian.PutUint16(udp[6:], sum16(pseudo))
	if dst.Is6() {
		head := []byte{0x60, 0, 0, 0, 0, byte(len(udp)), unix.IPPROTO_UDP, 64}
		return hex.EncodeToString(slices.Concat(to, from, []byte{0x86, 0xdd}, head, src.AsSlice(), dst.AsSlice(), udp))
	}
	head := slices.Concat([]byte{0x45, 0, 0, byte(20 + len(udp)), 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}, src.AsSlice(), dst.AsSlice())
	binary.BigEndian.PutUint16(head[10:], sum16(head))
	return hex.EncodeToString(slices.Concat(to, from, []byte{8, 0}, head, udp))
}

// sum16 is the checksum of RFC 1071.
func sum16(b []byte) uint16 {
	var s uint32
	for i := range b {
		s += uint32(b[i]) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

// Places in the networks of an engine's gateway, as deploy/compose/gateway.yaml has them, but for the addresses.
const (
	agentsNetwork = "172.30.6.0/24"
	agentsRange   = "172.30.6.128/25"
	gatewayThere  = "172.30.6.2"
)

// engineGateway is a gateway of an engine's, and the agent behind it.
type engineGateway struct {
	*Setting
	engine              *engine
	name, agent, agents string // of the containers and of the agents' network
	near                netip.Addr
	policy              string
	hop                 net.HardwareAddr // of the gateway, in the agents' network
}

// InCompose is an agent behind a gateway in an engine, as deploy/compose/gateway.yaml has both: own is agent-init's image, any
// that of the agent, and policy a directory with the gateway's.
func InCompose(tb lab.TB, netns, own, any, policy string) *Setting {
	tb.Helper()
	l := lab.New(tb, lab.Options{Within: netns})
	l.DNS.SetAddrs("*", "45.32.0.1", "2a0f:32::1")
	l.DNS.SetAddrs(ruled, ruledAddrs...)
	l.DNS.SetAddrs("*."+allowedBelow, "45.30.0.21", "2a0f:30::21")
	e := &engine{tb: tb}
	g := &engineGateway{engine: e, name: e.name("gateway"), agent: e.name("agent"), agents: e.name("agents"), policy: policy}
	outside := e.name("net")
	e.must("network", "create", outside)
	tb.Cleanup(func() { e.must("network", "rm", outside) })
	e.must("network", "create", "-d", "macvlan", "--internal", "-o", "parent="+lonelyLink(tb, l), "--subnet", agentsNetwork, "--ip-range", agentsRange, g.agents)
	tb.Cleanup(func() { e.must("network", "rm", g.agents) })
	neighbour := e.name("peer")
	e.must("run", "-d", "--name", neighbour, "--network", outside, "--entrypoint=sleep", any, "infinity")
	tb.Cleanup(func() { e.must("rm", "-f", neighbour) })
	g.near = netip.MustParseAddr(e.must("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", neighbour))

	shared, env := workspace(tb), directory(tb, "env", told)
	options := []string{"--cap-drop=ALL", "--cap-add=NET_ADMIN", "--cap-add=SETUID", "--cap-add=SETGID", "--cap-add=SETPCAP", "--security-opt=no-new-privileges",
		"--sysctl=net.ipv4.ip_forward=0", "-v", policy + ":/etc/agent-init:ro", "-v", env.Source + ":" + told,
		"-v", written(tb, l.CA.PEM, 0o644) + ":/etc/ssl/certs/ca-certificates.crt:ro", "-v", written(tb, []byte(Key(filed)+"\n"), 0o600) + ":" + secrets + "/" + filed + ":ro"}
	for _, v := range keyVariables() {
		options = append(options, "-e", v)
	}
	e.must(slices.Concat([]string{"create", "--name", g.name, "--network", outside, "--entrypoint=/usr/local/bin/agent-init"}, options, []string{own}, gatewayCommand(agentsNetwork, "own"))...)
	tb.Cleanup(func() { e.must("rm", "-f", g.name) })
	e.must("network", "connect", "--ip", gatewayThere, g.agents, g.name)

	there := netip.MustParseAddr(gatewayThere)
	g.Setting = &Setting{Name: "gateway, compose", Lab: l, Allowed: allowedName, Wildcard: allowedBelow, Resolver: there, EngineDNS: netip.MustParseAddr("127.0.0.11"),
		Guarded: true, Backend: "nftables", Engine: true, Workspace: shared.Target, Keys: true, Rules: true, Apart: true, At: []netip.Addr{there}}
	e.must("start", g.name)
	if err := g.began(); err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	tb.Cleanup(func() { e.must("rm", "-f", g.agent) })
	obeys := e.start("run", "-i", "--name", g.agent, "--network", g.agents, "--dns", gatewayThere, "-e", path, "-v", l.Tool("poke")+":"+tool+":ro",
		"-v", shared.Source+":"+shared.Target, "-v", env.Source+":"+told+":ro", any, tool, "obey")
	g.Agent = obeys.do
	if _, err := g.Agent("socket", "unix", "stream", "0"); err != nil { // also waits for the start
		tb.Fatalf("scorecard: the agent behind a gateway: %v", err)
	}
	mine, from, err := g.at(g.agent)
	if err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	g.Frames = func(dst netip.Addr) string {
		if dst.Is6() {
			return "" // the agent has no such address
		}
		return datagram(g.hop, mine, from, dst)
	}
	g.scene()
	return g.Setting
}

// began waits until the gateway is proved, and looks at its far side.
func (g *engineGateway) began() error {
	if _, err := g.engine.docker("exec", g.name, "/usr/local/bin/agent-init", "wait", "--timeout", "60s"); err != nil {
		return err
	}
	out, err := g.engine.docker("inspect", "--format", "{{.State.Pid}}", g.name)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err == nil {
		g.Box = g.Lab.Attach(pid, g.near)
		g.hop, _, err = g.at(g.name)
	}
	return err
}

// scene is what can happen to the gateway, while the agent is there.
func (g *engineGateway) scene() {
	root := func(args ...string) (string, error) {
		return g.engine.docker(append([]string{"exec", "-u", "root", g.name}, args...)...)
	}
	g.Restart = func() error {
		g.remember()
		g.Box.Detach()
		if _, err := g.engine.docker("restart", "-t", "1", g.name); err != nil {
			return err
		}
		return g.began()
	}
	g.Enter = func(args ...string) (lab.Poke, error) {
		out, err := g.engine.docker(slices.Concat([]string{"exec", "-u", "0", g.agent, tool}, args)...)
		if err != nil {
			return lab.Poke{}, err
		}
		return lab.ParsePoke(out)
	}
	g.Log = func() (string, error) { return root("cat", "/var/log/agent-init/audit.jsonl") }
	g.Reload = func(list string) error {
		err := os.WriteFile(filepath.Join(g.policy, filepath.Base(allowlistFile)), []byte(list), 0o644)
		_, rerr := root("agent-init", "reload")
		return errors.Join(err, rerr)
	}
}

// at is where a container is in the agents' network.
func (g *engineGateway) at(container string) (net.HardwareAddr, netip.Addr, error) {
	out, err := g.engine.docker("inspect", "--format", `{{with index .NetworkSettings.Networks "`+g.agents+`"}}{{.MacAddress}} {{.IPAddress}}{{end}}`, container)
	if err != nil {
		return nil, netip.Addr{}, err
	}
	mac, addr, _ := strings.Cut(strings.TrimSpace(out), " ")
	hw, merr := net.ParseMAC(mac)
	a, aerr := netip.ParseAddr(addr)
	return hw, a, errors.Join(merr, aerr)
}

// lonelyLink makes a link in the engine's namespace that leads to nobody, in place of one of the type dummy, which the
// engine would make itself, and which not every kernel has.
func lonelyLink(tb lab.TB, l *lab.Lab) string {
	tb.Helper()
	const name = "veth005c04e" // as the engine names its own
	far, err := netns.New()
	if err != nil {
		tb.Fatalf("scorecard: %v", err)
	}
	tb.Cleanup(func() { _ = far.Close() })
	up := func(name string) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	}
	err = l.Internet.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		return errors.Join(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "far", PeerNamespace: netlink.NsFd(far.FD())}), up(name))
	})
	if err := errors.Join(err, far.Do(func() error { return up("far") })); err != nil {
		tb.Fatalf("scorecard: a link that leads to nobody: %v", err)
	}
	return name // which ends with the other end's namespace
}
