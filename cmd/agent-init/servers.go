package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/resolver"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// A DNS server at an address of this network namespace is whoever has its port,
// and that may be the agent. Such servers are not taken from resolv.conf, and from
// the policy only with the word local; then the rules refuse what the agent sends
// as one (pkg/firewall/answers.go). The engine's own, at 127.0.0.11, is taken: in
// run and up the same rules know the agent by its uid, and in a sidecar, where
// it may have any, the guard believes the very sockets that were there at the start.

// shared says whether the agent is in another container, with a uid that is not known.
func (k *keeper) shared() bool { return k.state.Mode == "sidecar" }

// chooseServers takes out of c what is not to be asked, and says why.
func (k *keeper) chooseServers(c resolvConf) resolvConf {
	if k.config.unsafeNoFirewall {
		return c // there is no guard to ask one
	}
	own, err := localAddrs()
	if err != nil { // the rules refuse these too
		k.log.Warn("servers of resolv.conf are not compared with the own addresses", "error", err)
	}
	engine := ""
	switch {
	case k.fw.Reduced() != "":
		engine = "inside gVisor the engine's server can't be reached"
	case k.shared():
		if k.engine, err = socketsOfEngine(); err != nil {
			engine = err.Error()
		}
	}
	c.passOver(own, engine)
	for _, s := range c.passedOver {
		k.log.Warn("a DNS server of resolv.conf is not asked", "server", s)
	}
	k.update(func(s *state.State) { s.Guard.PassedOver = c.passedOver })
	return c
}

// passOver moves servers that are addresses of this namespace to passedOver.
// Engine says why the engine's is one of them, empty if it is not.
func (c *resolvConf) passOver(own map[netip.Addr]bool, engine string) {
	var kept []netip.AddrPort
	for _, s := range c.servers {
		a := s.Addr().Unmap().WithZone("")
		switch {
		case a == policy.EngineDNS() && engine == "":
			kept = append(kept, s)
		case a == policy.EngineDNS():
			c.passedOver = append(c.passedOver, fmt.Sprintf("%s: %s", a, engine))
		case a.IsLoopback() || a.IsUnspecified() || own[a]:
			c.passedOver = append(c.passedOver, fmt.Sprintf("%s: it is this container itself, where the agent can listen too", a))
		default:
			kept = append(kept, s)
		}
	}
	c.servers = kept
}

// socketsOfEngine are the sockets of the engine's DNS server.
func socketsOfEngine() ([]sockowner.Bound, error) {
	f, err := sockowner.Open()
	if err != nil {
		return nil, errors.New("the kernel does not tell whose it is (CONFIG_INET_UDP_DIAG), and in a sidecar's network the agent can listen too")
	}
	defer f.Close()
	bound, err := sockowner.NewFinder(f).At(policy.EngineDNS())
	if err != nil {
		return nil, fmt.Errorf("the kernel does not tell whose it is: %w", err)
	}
	seen := map[uint8]int{}
	for _, b := range bound {
		seen[b.Proto]++
	}
	for _, n := range []int{seen[uint8(policy.UDP)], seen[uint8(policy.TCP)]} {
		switch n {
		case 0:
			return nil, errors.New("nobody listens there, and in a sidecar's network the agent can")
		case 1:
		default:
			return nil, errors.New("several processes listen there, and one of them may be the agent")
		}
	}
	return bound, nil
}

// judgeServers says what is wrong with the servers that the policy names.
func (k *keeper) judgeServers(p *policy.Policy) error {
	if k.config.unsafeNoFirewall {
		return nil
	}
	if len(p.Settings().DNS.Upstream) == 0 && len(k.resolv.servers) == 0 && len(k.resolv.passedOver) > 0 {
		return fault.New(fault.Policy, "name a server outside of the container in dns.upstream (docker: --dns; compose: dns; kubernetes: dnsConfig)",
			"no DNS server of resolv.conf is asked: %s", strings.Join(k.resolv.passedOver, "; "))
	}
	own, err := localAddrs()
	if err != nil {
		k.log.Warn("dns.upstream is not compared with the own addresses", "error", err)
	}
	for _, text := range p.Settings().DNS.Upstream {
		u, err := policy.ParseUpstream(text)
		if err != nil {
			return fault.New(fault.Policy, "correct dns.upstream in policy.yaml", "dns.upstream: %w", err)
		}
		a := u.Addr.Addr()
		switch {
		case u.Local && k.shared():
			return fault.New(fault.Policy, "name a server outside of the pod in dns.upstream, or use agent-init run",
				"dns.upstream: %s: in a network that containers share, the agent may have any uid, and so answer in the server's place", text)
		case u.Local && k.fw.Reduced() != "":
			return fault.New(fault.Policy, "name a server outside of the container in dns.upstream, or use another runtime",
				"dns.upstream: %s: inside gVisor a server of the container itself can't be told from the agent", text)
		case a == policy.EngineDNS() && k.shared() && len(k.engine) == 0:
			_, err := socketsOfEngine()
			return fault.New(fault.Policy, "name a server outside of the container in dns.upstream", "dns.upstream: %s: %w", text, err)
		case own[a] && !a.IsLoopback() && !u.Local:
			return fault.New(fault.Policy, "if a server of yours listens there, and not as the agent's user, write the word local behind it",
				"dns.upstream: %s is an address of this container, where the agent can listen too", text)
		}
	}
	return nil
}

// here are the servers that a person vouches for.
func here(p *policy.Policy) []netip.AddrPort {
	var out []netip.AddrPort
	for _, text := range p.Settings().DNS.Upstream {
		if u, err := policy.ParseUpstream(text); err == nil && u.Local {
			out = append(out, u.Addr)
		}
	}
	return out
}

// errOtherEngine is why nothing is believed that comes from where the engine's DNS
// server was.
var errOtherEngine = errors.New("the engine's DNS server has ended since agent-init was started: start this container again to take the new one")

// believer is the guard's check of answers, in a sidecar. A socket that is still
// there after an answer had the port all the while, so that nobody else can have
// sent it.
func believer(find *sockowner.Finder, engine []sockowner.Bound) func(resolver.Upstream) error {
	return func(u resolver.Upstream) error {
		if u.Addr.Addr().Unmap() != policy.EngineDNS() {
			return nil
		}
		if len(engine) == 0 {
			return errOtherEngine
		}
		for _, b := range engine {
			there, err := find.Still(b)
			if err != nil {
				return fmt.Errorf("look for the engine's DNS server: %w", err)
			}
			if !there {
				return errOtherEngine
			}
		}
		return nil
	}
}
