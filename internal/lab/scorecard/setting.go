package scorecard

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/agent-init/agent-init/internal/lab"
)

// Setting is a container that the attacks are made in.
type Setting struct {
	Name string
	Lab  *lab.Lab
	Box  *lab.Box // its far side
	// Agent runs one operation of cmd/poke as the agent.
	Agent func(args ...string) (lab.Poke, error)

	Scene

	// Allowed is a name that the policy allows on 443 and 80; Wildcard one such
	// that everything below it is allowed too, or "".
	Allowed, Wildcard string
	// Resolver is the DNS server that the container is told of; EngineDNS is
	// 127.0.0.11 where an engine answers there, else the zero Addr.
	Resolver, EngineDNS netip.Addr
	// Ours says that agent-init and its files are in the agent's own container.
	Ours bool
	// Guarded says that agent-init confines it, by which packet filter: Backend.
	Guarded bool
	Backend string
	// Apart says that a gateway confines it, in a container of its own, of which Box is the far side. Frames are what the agent
	// can send to that past its own kernel.
	Apart  bool
	Frames func(dst netip.Addr) string
	// At are the addresses of what is allowed as the agent finds them, if they aren't those of the name.
	At []netip.Addr
	// Workspace is a directory that outlives the container and belongs to its agent;
	// "bin" in it comes first in PATH.
	Workspace string
	// Engine says that it is a container of an engine, which takes options.
	Engine bool
	// Starts says that agent-init starts the agent, and doesn't confine its network
	// only.
	Starts bool
	// Keys says that the agent has the APIs of models, by whatever way.
	Keys bool
	// Rules says that its policy allows some requests of ruled alone, where it can.
	Rules bool
	// Only are the letters of the series that are tried here; "" is all.
	Only string
	// Open says that nothing confines the agent: attacks have to succeed, or they
	// prove nothing.
	Open bool
	// Proxies are those that the agent is to use, as poke takes them: each attack that a proxy could make for it is also made
	// by each of them.
	Proxies []string
	// Works says that what is allowed can be reached, and Resolves that names are to be answered. Run finds it out.
	Works, Resolves bool

	refusal string // why it does not work

	mu   sync.Mutex
	past []lab.Packet // that left the container in an earlier life of its
}

// bad is what belongs to one attack alone: a name, and addresses.
type bad struct {
	name, other string
	v4, v6      netip.Addr
}

func (a *Attack) bad() bad {
	var n byte
	_, _ = fmt.Sscanf(a.ID[1:], "%d", &n)
	net := byte(31)
	switch a.ID[0] {
	case 'X':
		net = 41
	case 'K':
		net = 51
	case 'P':
		net = 61
	case 'R':
		net = 71
	}
	id := strings.ToLower(a.ID)
	return bad{
		name: id + ".evil.test", other: id + ".other.test",
		v4: netip.AddrFrom4([4]byte{45, net, n, 1}), v6: netip.MustParseAddr(fmt.Sprintf("2a0f:%d:%d::1", net, n)),
	}
}

// values are what {braces} of an attack stand for here; what is empty this
// setting doesn't have.
func (s *Setting) values(a *Attack) map[string]string {
	b := a.bad()
	ok4, ok6 := s.allowed()
	at4, at6 := ok4, ok6
	if len(s.At) > 0 {
		at4, at6 = s.At[0], netip.Addr{}
	}
	v := map[string]string{
		"bad": b.name, "bad4": b.v4.String(), "bad6": b.v6.String(), // the attack's own
		"ok": s.Allowed, "ok4": text(at4), "ok6": text(at6), // what is allowed
		"other": b.other, // the attack's own, at the addresses of what is allowed
		"gw4":   text(s.Box.Gateway4()), "near4": text(s.Box.Neighbor4()),
		"gw6":      text(s.Box.Gateway6()),
		"resolver": text(s.Resolver), "engine-dns": text(s.EngineDNS),
		"hello": clientHello(b.other), "two-questions": twoQuestions(s.Allowed, b.name),
		"sub": "", "wildcard": s.Wildcard, "mixed-case": mixedCase(s.Allowed), "n": "{n}", // which poke itself replaces
		"workspace": s.Workspace, "ech": encryptedHello(b.other), "ech-ok": "", "route": "",
		"frame4": "", "frame6": "",
		"init": "1", "agent-init": "", "control": "", "run": "", "policy": "",
	}
	if s.Frames != nil {
		v["frame4"], v["frame6"] = s.Frames(b.v4), s.Frames(b.v6)
	}
	v["keys"], v["stranger"], v["provider"] = "", "", ""
	if s.Keys {
		v["keys"], v["stranger"], v["provider"] = hunted(), stranger, Provider("anthropic")
	}
	for name, body := range bodies() {
		v[name] = ""
		if s.Keys {
			v[name] = strings.ReplaceAll(body, "BAD", b.name)
		}
	}
	v["ruled"], v["ruled4"] = "", ""
	if s.Rules {
		v["ruled"], v["ruled4"] = ruled, ruledAddrs[0]
	}
	for name, body := range ruleBodies() {
		if v[name] = ""; s.Rules {
			v[name] = strings.ReplaceAll(body, "BAD", b.name)
		}
	}
	if s.Ours {
		v["agent-init"], v["policy"], v["run"] = "agent-init", "/etc/agent-init/allowlist.txt", "/run/agent-init"
		v["control"] = "/run/agent-init/control.sock"
	}
	if s.Allowed != "" {
		v["ech-ok"], v["route"] = encryptedHello(s.Allowed), fmt.Sprintf("830704%x00", ok4.AsSlice()) // a loose one (RFC 791)
	}
	if s.Wildcard != "" {
		v["sub"] = strings.ToLower(a.ID) + "." + s.Wildcard
	}
	return v
}

// Unreached says that what is allowed can't be reached, and why; "" if it can, or nothing is.
func (s *Setting) Unreached() string {
	if s.Works || s.Allowed == "" {
		return ""
	}
	return fmt.Sprintf("%s can't be reached, so that what rides on it is not tried: %s", s.Allowed, s.refusal)
}

func (s *Setting) allowed() (v4, v6 netip.Addr) {
	for _, a := range lab.Names()[s.Allowed] {
		if a.Is4() {
			v4 = a
		} else {
			v6 = a
		}
	}
	return v4, v6
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
