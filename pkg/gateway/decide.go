package gateway

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

type use struct {
	anywhere bool           // the address says nothing: see Config.Own
	name     string         // whose address it is; "": the address itself is what is allowed
	to       netip.AddrPort // the address
	switches bool           // to another protocol than HTTP
	hidden   bool           // there may be another name, in an Encrypted ClientHello
	plain    bool           // HTTP without TLS
	target   authority      // if the name is a proxy's: what that is asked for
}

const webPort, tlsPort = 80, 443

type authority struct {
	host string // a name as it came, or an address
	port uint16
}

type ruling struct {
	name    string // as compared, or as it came if it is not valid; of a CONNECT, the target's
	port    uint16
	allowed bool
	rule    policy.Source // where the deciding rule is; zero if there is none
	via     proxy         // that a CONNECT is for
	said    string        // by the policy
	why     *refusal      // nil if there is none
	way     policy.Way    // how connections to the name go out
	proxied bool          // by the upstream proxy
	enforce audit.Verdict // what it would be without Config.Monitor, if it differs
}

func (r ruling) no(why *refusal) ruling {
	r.allowed, r.why = false, why
	return r
}

func (r ruling) Error() string {
	words := r.said
	if r.why != nil && r.why != refusedByPolicy {
		words = r.why.Error()
	}
	if r.enforce != "" {
		return "monitor: " + words
	}
	return words
}

// denial is an error by which the gate refuses: a refusal, or a ruling.
type denial interface {
	error
	denies()
}

func (*refusal) denies() {}
func (ruling) denies()   {}

// proxy is an HTTP proxy of the policy. It outlives the policy, which may be large, and holds nothing of it.
type proxy struct {
	name string
	rule policy.Source
}

// canonical returns name as names are compared, and whether it can be a name.
// Only ASCII passes: what a server makes of other bytes is anyone's guess.
func canonical(name string) (string, bool) {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return name, false
	}
	return strings.ToLower(strings.TrimSuffix(name, ".")), name != ""
}

// maxLeased is how many names of one connection are remembered as leased.
const maxLeased = 16

// decide says whether c may be used for name, which it claims, with u. The lease counts when a
// name is first used: its end alone ends no connection.
func (c *conn) decide(ctx context.Context, raw string, u use) ruling {
	name, ok := canonical(raw)
	if !ok {
		return ruling{name: raw, port: c.to.Port(), why: refusedName}
	}
	u.name, u.to, u.anywhere = name, c.at, c.own
	c.claim(u)
	r := c.s.observe(c.permit(u))
	switch {
	case c.own:
		return c.place(ctx, r)
	case r.enforce != "" && u.switches: // no entry, so none that says upgrade
		return ruling{name: name, port: u.to.Port(), why: refusedUpgrade}
	case !r.allowed || r.enforce != "":
		return r
	}
	if why := c.leasedTo(ctx, name); why != nil {
		return c.s.observe(r.no(why))
	}
	return r
}

// permit is what the policy in force says of u. What is not for the broker is noted as passed on before that policy may
// have changed: Recheck sees that, or this sees the new one.
func (c *conn) permit(u use) ruling {
	for {
		p := c.s.config.Policy()
		r := permit(p, u)
		if r.way != policy.Inspected {
			c.mu.Lock()
			c.passed = true
			c.mu.Unlock()
		}
		if c.s.config.Policy() == p {
			return r
		}
	}
}

// observe lets r through in monitor mode, if a name or an address was refused.
func (s *Server) observe(r ruling) ruling {
	if !r.allowed && s.config.Monitor && r.why.ofNames() {
		r.allowed, r.enforce = true, audit.Deny
	}
	return r
}

// decideConnect says whether c leads to a proxy of the policy, which may reach target.
func (c *conn) decideConnect(ctx context.Context, target authority) ruling {
	no := ruling{name: target.host, port: target.port, why: refusedConnect}
	for _, rule := range c.s.config.Policy().Proxies {
		name := strings.Clone(rule.Name) // else a part of the policy's text
		switch why := c.leasedTo(ctx, name); why {
		case nil:
			u := use{name: name, to: c.at, plain: true, target: target}
			c.claim(u)
			r := c.permit(u)
			if _, err := netip.ParseAddr(target.host); err != nil { // a name
				r = c.s.observe(r)
			}
			return r
		case refusedLease: // so it is another one
		default:
			no.why = why
		}
	}
	return no
}

// leasedTo returns nil if the address is leased to name, else a refusal.
func (c *conn) leasedTo(ctx context.Context, name string) *refusal {
	if slices.Contains(c.leased, name) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.limits.held)
	defer cancel()
	held, err := c.s.config.LeasedTo(ctx, name, c.at)
	switch {
	case err != nil:
		c.s.config.Log.Warn("the name gate can't ask about a lease", "error", err)
		return refusedKeeper
	case !held:
		return refusedLease
	case len(c.leased) < maxLeased:
		c.leased = append(c.leased, name)
	}
	return nil
}

// permit is the policy's part. Without a name it is about the address itself.
func permit(p *policy.Policy, u use) ruling {
	port := policy.Port{Proto: policy.TCP, Number: u.to.Port()}
	if u.name == "" {
		return rule(port.Number, p.DecideAddr(u.to.Addr(), port))
	}
	r := rule(port.Number, p.Decide(u.name, port))
	r.name = u.name
	if r.allowed {
		r.way = p.Way(u.name, port)
	}
	r.proxied = p.Proxied(u.name, port)
	switch {
	case !r.allowed:
	case !u.anywhere && !slices.Contains(p.Admit(u.name, u.to.Addr()), port):
		return r.no(refusedAddress)
	case r.way != policy.ByAddress && p.Plain(u.name, port) != u.plain:
		return r.no(carries[u.plain])
	case u.hidden && p.Settings.TLS.ECH == "refuse":
		return r.no(refusedECH)
	case r.way == policy.Inspected: // whatever else it is, the broker judges it
	case u.target != authority{}:
		to := permitConnect(p, u)
		to.proxied = r.proxied
		return to
	case u.switches:
		by := p.Upgrades(u.name, port)
		if by == nil {
			return r.no(refusedUpgrade)
		}
		r.rule = by.Source
	}
	return r
}

// carries is the refusal of HTTP, and else of TLS, where the policy has the other.
var carries = map[bool]*refusal{true: refusedTLS, false: refusedPlain}

func rule(port uint16, d policy.Decision) ruling {
	r := ruling{port: port, allowed: d.Allowed, said: d.Reason}
	if d.Rule != nil {
		r.rule = d.Rule.Source
	}
	if !d.Allowed {
		r.why = refusedByPolicy
	}
	return r
}

// permitConnect is permit for a proxy that may be reached. What the agent asks
// of it is held to the policy as if there were no proxy.
func permitConnect(p *policy.Policy, u use) ruling {
	no := ruling{name: u.target.host, port: u.target.port, why: refusedConnect}
	i := slices.IndexFunc(p.Proxies, func(r *policy.Rule) bool { return r.Name == u.name })
	if i < 0 {
		return no
	}
	no.via = proxy{u.name, p.Proxies[i].Source}
	port := policy.Port{Proto: policy.TCP, Number: u.target.port}
	var r ruling
	if a, err := netip.ParseAddr(u.target.host); err == nil {
		r = rule(port.Number, p.DecideAddr(a, port))
		r.name = u.target.host
	} else if name, ok := canonical(u.target.host); ok {
		r = rule(port.Number, p.Decide(name, port))
		r.name = name
	} else {
		return no.no(refusedName)
	}
	r.via = no.via
	if target := (policy.Port{Proto: policy.TCP, Number: r.port}); r.allowed && p.Way(r.name, target) == policy.Inspected {
		return r.no(refusedTunnel) // nobody would look into it
	}
	return r
}

// Recheck judges every open connection by the policy in force, and resets those that
// are no longer allowed, or that would be the broker's now. It is called after Config.Policy returns the new one.
func (s *Server) Recheck() {
	p := s.config.Policy()
	known := make(map[use]ruling)
	for _, c := range s.conns.all() {
		c.stands(p, known)
	}
}

// stands judges c by a policy, by whatever it is used for, and resets it if it is not allowed any more. What was ruled is
// noted in known.
func (c *conn) stands(p *policy.Policy, known map[use]ruling) bool {
	for _, u := range c.claims() {
		r, ok := known[u]
		if !ok {
			r = c.s.observe(permit(p, u))
			known[u] = r
		}
		if !r.allowed || r.inspected() && c.isPassed() || r.way == policy.Gated && c.otherWay(r) {
			c.end(audit.Deny, refusedRevoked.Error())
			return false
		}
	}
	return true
}

// direct decides whether c may pass by its address alone. If not, the name inside it
// decides, on ports where there is one; on others c is refused.
func (c *conn) direct(ctx context.Context) (ruling, bool) {
	if c.s.config.Direct == nil {
		return ruling{}, false
	}
	// Like a name, the address is claimed before it is judged.
	u := use{to: c.to}
	c.claim(u)
	r := permit(c.s.config.Policy(), u)
	hidden := c.to.Port() == tlsPort || c.to.Port() == webPort
	if !r.allowed && hidden {
		c.unclaim(0)
		return ruling{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.limits.held)
	defer cancel()
	name, ok, err := c.s.config.Direct(ctx, c.to)
	switch {
	case err != nil:
		c.s.config.Log.Warn("the name gate can't ask about an address", "error", err)
		return ruling{port: c.to.Port(), why: refusedKeeper}, true
	case !ok && r.allowed: // by a policy that is not in force any more
		r = r.no(refusedRevoked)
	case !ok:
	case name != "":
		c.unclaim(0)
		u.name = name
		c.claim(u)
		if r = c.permit(u); r.way != policy.ByAddress { // the name inside decides here, too
			c.unclaim(0)
			return ruling{}, false
		}
	}
	return r, true
}
