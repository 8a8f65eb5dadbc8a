package inspect

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
)

// checkIPTables looks for rules that another generation of iptables holds.
func checkIPTables(_ context.Context, p patient) []finding {
	backend := ""
	if p.state != nil {
		backend = p.state.Firewall.Backend
	}
	switch {
	case strings.HasPrefix(backend, "xtables") && !p.has("ip6tables-restore") && !p.has("ip6tables-nft-restore") && !p.has("ip6tables-legacy-restore"):
		return fail("iptables", "apt-get install iptables, or use --backend nftables", "ip6tables is missing, and %s needs it for IPv6", backend)
	case len(p.legacyTables) > 0 && backend != "xtables-legacy":
		return warn("iptables", "remove the rules of iptables-legacy, or leave them: neither can open what the other closes",
			"iptables-legacy has tables here (%s) beside nftables", strings.Join(p.legacyTables, ", "))
	case backend == "" || backend == "nftables":
		return pass("iptables", "not needed: nftables holds both families")
	}
	return pass("iptables", "both families are there, by %s", backend)
}

// checkIPv6 finds an IPv6 that is up in part.
func checkIPv6(_ context.Context, p patient) []finding {
	const off = "docker: --sysctl net.ipv6.conf.all.disable_ipv6=1; compose: sysctls: [net.ipv6.conf.all.disable_ipv6=1]; kubernetes: securityContext.sysctls of the pod"
	switch {
	case p.addrs6 == 0 && !p.loopback6:
		return pass("IPv6", "off")
	case !p.loopback6:
		return warn("IPv6", off+"; or turn it on for lo as well (net.ipv6.conf.lo.disable_ipv6=0)", "half up: there are addresses but no ::1, so names are neither answered nor reached over IPv6")
	case p.addrs6 > 0 && !p.route6:
		return warn("IPv6", off+"; or give the network a route", "half up: there are addresses but no way out, so programs that try IPv6 first lose time")
	case p.addrs6 == 0:
		return pass("IPv6", "on the loopback only")
	}
	if p.state.Word() != state.WordConfined || p.state.Monitor {
		return pass("IPv6", "up, like IPv4")
	}
	return pass("IPv6", "up, and confined like IPv4")
}

func checkPolicyFiles(_ context.Context, p patient) []finding {
	if p.policyErr != nil {
		fix := "see agent-init check"
		var f *fault.Fault
		if errors.As(p.policyErr, &f) && f.Remedy != "" {
			fix = f.Remedy
		}
		return fail("policy", fix, "%s", text.FirstFault(p.policyErr.Error()))
	}
	if under(p.dir, stage.Workspace) {
		return fail("policy", "put it at /etc/agent-init in the image, or mount it there read-only", "%s is inside the workspace, which the agent writes", p.dir)
	}
	if n := len(p.policy.Warnings()); n > 0 {
		return warn("policy", "see agent-init check", "%s, the first: %v", text.Counted(n, "warning", "warnings"), p.policy.Warnings()[0])
	}
	return pass("policy", "root's alone; %s", state.SizeOf(p.policy.Counts()))
}

func under(dir, parent string) bool {
	dir = path.Clean(dir)
	return dir == parent || strings.HasPrefix(dir, parent+"/")
}

// checkMounts looks for sockets that lead out of the container without a packet.
func checkMounts(_ context.Context, p patient) []finding {
	var out []finding
	for _, s := range p.sockets {
		name := path.Base(s)
		switch {
		case container.IsEngineSocket(s):
			out = append(out, fail("mounts", "remove it: docker: -v "+s+":"+s+"; compose: volumes; kubernetes: hostPath", "%s is an engine's socket: who can open it is root on the machine", s)...)
		case strings.Contains(strings.ToLower(s), "ssh") || name == "agent.sock" || name == "S.gpg-agent":
			out = append(out, warn("mounts", "remove it, or load only the keys that the agent may use (ssh-add -c asks each time)", "%s is a key agent's socket: the agent can sign in as you, to hosts that the policy allows", s)...)
		}
	}
	if len(out) == 0 {
		return pass("mounts", "no engine's and no key agent's socket")
	}
	return out
}

// knownResolvers are names that DNS over HTTPS and TLS is served under.
var knownResolvers = [...]string{
	"cloudflare-dns.com", "mozilla.cloudflare-dns.com", "chrome.cloudflare-dns.com", "one.one.one.one", "dns.google", "dns.google.com",
	"dns.quad9.net", "doh.opendns.com", "dns.adguard-dns.com", "doh.cleanbrowsing.org", "dns.nextdns.io", "doh.mullvad.net", "dns.mullvad.net",
}

// checkEncryptedDNS looks for DNS that goes another way.
func checkEncryptedDNS(_ context.Context, p patient) []finding {
	var out []finding
	if p.policy != nil {
		for _, name := range knownResolvers {
			if d := p.policy.Decide(name, policy.HTTPS); d.Allowed {
				out = append(out, warn("DoH", "remove it, unless it is what you want: DNS over HTTPS carries any name, to anyone", "%s allows %s, a public resolver", d.Rule.Source, name)...)
			}
		}
	}
	var asked []string
	for _, name := range p.deniedNames {
		if slices.Contains(knownResolvers[:], name) {
			asked = append(asked, name)
		}
	}
	if len(asked) > 0 {
		out = append(out, warn("DoH", "turn it off in the program's settings; names are answered without it", "a program tries to use DNS over HTTPS, and is denied: %s", strings.Join(asked, ", "))...)
	}
	if len(out) == 0 {
		return pass("DoH", "no program tries to use another resolver")
	}
	return out
}

// checkUpstreams looks at how the guard fares with its servers.
func checkUpstreams(_ context.Context, p patient) []finding {
	const fix = "give servers that answer: docker: --dns; compose: dns; kubernetes: dnsPolicy and dnsConfig; or dns.upstream in policy.yaml"
	if len(p.servers) == 0 && len(p.passedOver) > 0 {
		return fail("DNS", fix, "no server of resolv.conf is asked: %s", strings.Join(p.passedOver, "; "))
	}
	if len(p.servers) == 0 {
		return fail("DNS", fix, "there is no upstream server: neither resolv.conf nor dns.upstream names one")
	}
	where := fmt.Sprintf("%d upstream servers", len(p.servers))
	if len(p.servers) == 1 {
		where = p.servers[0]
	}
	if p.state == nil {
		return pass("DNS", "%s", where)
	}
	s := p.state.Guard.Stats
	switch {
	case s.Asked >= 3 && s.Failed*2 > s.Asked:
		return fail("DNS", fix, "%s: %d of %s got no answer", where, s.Failed, text.Counted(s.Asked, "question", "questions"))
	case len(p.passedOver) > 0:
		return warn("DNS", fix+"; to vouch for a server of the container itself, name it there with the word local", "%s; not asked: %s", where, strings.Join(p.passedOver, "; "))
	case p.strippedNames > 0:
		return warn("DNS", "see agent-init log --denied; if the names are of your own network, add `private` to their entries", "%s: answers for %s had private or reserved addresses: somebody answers in place of the real servers, or the names are internal",
			where, text.Counted(p.strippedNames, "name", "names"))
	case s.Failed > 0:
		return warn("DNS", "see agent-init log", "%s: %d of %s got no answer", where, s.Failed, text.Counted(s.Asked, "question", "questions"))
	}
	return pass("DNS", "%s; %s, all answered", where, text.Counted(s.Asked, "question", "questions"))
}
