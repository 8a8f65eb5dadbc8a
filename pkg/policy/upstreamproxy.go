package policy

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agent-init/agent-init/pkg/route"
)

// maxStraight bounds what goes past the proxy: it is looked through for each connection.
const maxStraight = 1000

// upstreamProxy reads the URL of the proxy alone, or a section with more words.
func (ps *parser) upstreamProxy(n node) {
	if n.Kind == yaml.ScalarNode && !n.isNull() {
		if text, ok := ps.value(n); ok {
			ps.proxyAt(n, text)
		}
		return
	}
	if n.isNull() || !ps.once(n.at(), n.name) {
		return
	}
	before := len(ps.errs.list)
	ps.section(n, ps.proxyKeys())
	x := &ps.settings.UpstreamProxy
	switch {
	case len(ps.errs.list) > before:
	case x.Host == "":
		ps.wrong(n, "say which proxy it is, as in to: http://proxy.corp.example:3128")
	case x.Scheme != "" && x.Credential == "":
		ps.wrong(n, "auth says how a credential is shown: say where it is, as in credential: file:/run/secrets/proxy")
	case x.Resolves && ps.set["upstream_proxy.connect"] != Source{} && !x.ByName:
		ps.wrong(n, "with resolve: proxy there is no address to ask the proxy for: take connect: address out")
	}
	x.ByName = x.ByName || x.Resolves
	if x.Credential != "" && x.Scheme == "" {
		x.Scheme = route.Basic
	}
}

func (ps *parser) proxyKeys() []key {
	x := &ps.settings.UpstreamProxy
	return []key{
		{name: "to", read: func(n node) {
			if text, ok := ps.value(n); ok {
				ps.proxyAt(n, text)
			}
		}},
		{name: "credential", read: setting(ps, &x.Credential, pathOf("the credential of a proxy"))},
		{name: "auth", read: setting(ps, &x.Scheme, oneOf(route.Basic, route.Bearer, route.Negotiate))},
		{name: "connect", read: setting(ps, &x.ByName, either("address", "name"))},
		{name: "resolve", read: setting(ps, &x.Resolves, either("here", "proxy"))},
		{name: "straight", read: list(ps, &x.Straight, straight)},
	}
}

// either reads two words as no and yes.
func either(no, yes string) func(key, text string) (bool, string) {
	return func(key, text string) (bool, string) {
		if text != no && text != yes {
			return false, key + " is " + no + " or " + yes
		}
		return text == yes, ""
	}
}

// proxyAt takes in where the proxy is.
func (ps *parser) proxyAt(n node, text string) {
	const form = "a proxy is http://HOST:PORT, as in http://proxy.corp.example:3128"
	wrong := func(message string) { // the text may have a password in it
		ps.errs.add(Error{Source: n.at(), Text: n.name, Message: message})
	}
	u, err := url.Parse(text)
	var r Rule
	switch {
	case err == nil && u.User != nil:
		wrong("no credential stands in the URL of a proxy, which anybody can read: write credential: file:/PATH")
	case err == nil && u.Scheme == "https":
		wrong("the proxy is asked without TLS: " + form)
	case err != nil, u.Scheme != "http", u.Port() == "", strings.Trim(u.Path, "/") != "", u.RawQuery != "", u.Fragment != "",
		parseTarget(strings.ToLower(u.Host), &r) != nil:
		wrong(form)
	default:
		if problem := reachable(&r); problem != "" {
			wrong(strings.ReplaceAll(problem, "a route leads", "a proxy is reached") + "; " + form)
			return
		}
		ps.set["upstream_proxy.to"] = n.at()
		ps.settings.UpstreamProxy.Host, ps.settings.UpstreamProxy.Port = r.Target(), r.Ports[0].Number
	}
}

// straight reads a name, a wildcard or a block of addresses, with a port or without.
func straight(text string) (s route.Straight, f *fault) {
	const form = "a name, a wildcard, an address or a block goes past the proxy, with a port or without: *.corp.example, 10.0.0.0/8, github.com:22"
	var r Rule
	preset, f := parseEntry(text, &r)
	switch {
	case f != nil:
		return s, f
	case preset != "", r.Deny, r.Flags != Flags{}, r.Request != nil:
		return s, &fault{0, text, form, ""}
	}
	s = route.Straight{Name: r.Name, Wildcard: r.Wildcard, Prefix: r.Prefix}
	if r.Ports != nil {
		s.Port = r.Ports[0].Number
	}
	return s, nil
}

// Proxied says whether connections to name on port go by the upstream proxy.
func (p *Policy) Proxied(name string, port Port) bool {
	x := &p.Settings.UpstreamProxy
	if x.Host == "" || port.Proto != TCP {
		return false
	}
	name, _ = p.canonical(name)
	return !x.Passes(name, false, port.Number)
}

// standIns is the block of the addresses that stand in for names which the proxy resolves. They are for benchmarks
// (RFC 2544), so nobody's servers have them.
var standIns = netip.MustParsePrefix("198.18.0.0/15")

// StandIn is the address that a name has for the agent, if the proxy resolves it: nothing is there, and nothing is ever
// sent to it. Names may share one, as they share a CDN's: the name gate tells them apart.
func (p *Policy) StandIn(name string) (netip.Addr, bool) {
	name, _ = p.canonical(name)
	if !p.Settings.UpstreamProxy.Resolves || p.bound != nil || !slices.ContainsFunc(p.Ports(name), func(port Port) bool { return p.Proxied(name, port) }) {
		return netip.Addr{}, false
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	sum := h.Sum32()
	return netip.AddrFrom4([4]byte{198, 18 | byte(sum>>16)&1, byte(sum >> 8), byte(sum)}), true
}

// upstreamProxied finds what can't go by the proxy, and does not go straight by a word either.
func (p *Policy) upstreamProxied(ps *parser) {
	x := &p.Settings.UpstreamProxy
	if x.Host == "" {
		return
	}
	if len(x.Straight) > maxStraight {
		ps.errs.add(Error{Source: ps.set["upstream_proxy.to"], Text: "straight", Message: fmt.Sprintf("%d entries go past the proxy at most", maxStraight)})
		return
	}
	said := map[Source]bool{}
	no := func(r *Rule, format string, args ...any) {
		if !said[r.Source] { // of a preset, once
			said[r.Source] = true
			ps.errs.add(Error{Source: r.Source, Text: r.Text, Message: fmt.Sprintf(format, args...)})
		}
	}
	const remedy = ": name it in upstream_proxy.straight to have it go past the proxy, or take it out"
	for _, s := range p.Static {
		switch {
		case s.Rule.Name != "" && !x.Passes(s.Rule.Name, s.Rule.Wildcard, s.Port.Number):
			no(s.Rule, "the hosts file has an address for it, to which the kernel lets connections out, and so it can't go by upstream_proxy%s", remedy)
		case s.Rule.Name == "" && !x.PassesBlock(s.Prefix, s.Port.Number):
			no(s.Rule, "an entry by address can't go by upstream_proxy%s", remedy)
		case x.Resolves && s.Prefix.Overlaps(standIns):
			no(s.Rule, "addresses of %v stand in for names that the proxy resolves: take this entry out, or write resolve: here", standIns)
		case s.Port.Proto == TCP && s.Port.Number == x.Port && p.coversProxy(s.Prefix):
			no(s.Rule, "the upstream proxy may be in this block, and the agent never reaches it: take its port out, or name the proxy by its address")
		}
	}
	for _, d := range p.Denied {
		if x.Resolves && d.Prefix.Overlaps(standIns) {
			no(d.Rule, "addresses of %v stand in for names that the proxy resolves: take this entry out, or write resolve: here", standIns)
		}
	}
	for _, r := range p.rules {
		if r.Deny || r.Name == "" {
			continue
		}
		for _, port := range r.Ports {
			switch {
			case port.Proto == TCP && x.Passes(r.Name, r.Wildcard, port.Number):
			case port.Proto != TCP && x.Passes(r.Name, r.Wildcard, port.Number):
			case port.Proto != TCP:
				no(r, "nothing but TCP can go by upstream_proxy%s", remedy)
			case p.Way(r.Name, port) == ByAddress && r.Direct:
				no(r, "what is direct can't go by upstream_proxy: take the word out, or name it in upstream_proxy.straight")
			case p.Way(r.Name, port) == ByAddress:
				no(r, "by upstream_proxy goes only what is looked into, and port %v is not: write tls or http behind it, or name it in upstream_proxy.straight", port)
			}
		}
		if x.Resolves && !r.Wildcard {
			p.oneWay(r, no)
		}
	}
}

// oneWay refuses a name that goes straight on one port, and not on another, where it can have one kind of address only.
func (p *Policy) oneWay(r *Rule, no func(r *Rule, format string, args ...any)) {
	ports := p.Ports(r.Name)
	proxied := func(port Port) bool { return p.Proxied(r.Name, port) }
	if slices.ContainsFunc(ports, proxied) && !slices.ContainsFunc(ports, func(port Port) bool { return !proxied(port) }) ||
		!slices.ContainsFunc(ports, proxied) {
		return
	}
	no(r, "with resolve: proxy, a name goes past the proxy on all of its ports, or on none")
}

// coversProxy says whether the proxy may have an address of a block.
func (p *Policy) coversProxy(block netip.Prefix) bool {
	a, err := netip.ParseAddr(p.Settings.UpstreamProxy.Host)
	return err != nil || block.Contains(a)
}

// proxyRule is the proxy as a host of the broker's, nil without one. Who names a proxy says that it is one's own.
func (p *Policy) proxyRule(ps *parser) *Rule {
	x := &p.Settings.UpstreamProxy
	if x.Host == "" {
		return nil
	}
	r := &Rule{Source: ps.set["upstream_proxy.to"], Text: "upstream_proxy", Ports: []Port{{TCP, x.Port}}, routes: true}
	if a, err := netip.ParseAddr(x.Host); err == nil {
		r.Prefix = single(a)
	} else {
		r.Name, r.Private = x.Host, true
	}
	for _, by := range p.besides(r) {
		ps.errs.add(Error{Source: by.Source, Text: by.Text, Message: "this is the upstream proxy, and the agent never reaches it: take the entry out"})
	}
	return r
}
