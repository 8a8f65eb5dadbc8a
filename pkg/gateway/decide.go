package gateway

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// ruling is what was decided about a name at an address, and by which rule.
type ruling struct {
	name    string // as compared, or as it came if it is not valid
	allowed bool
	rule    *policy.Rule
	reason  string // of the policy, or a refusal
}

// source is the file and line of the deciding rule.
func (r ruling) source() string {
	if r.rule == nil {
		return ""
	}
	return r.rule.Source.String()
}

// canonical returns name as names are compared, and whether it can be a name.
// Only ASCII passes: what a server makes of other bytes is anyone's guess.
func canonical(name string) (string, bool) {
	for i := 0; i < len(name); i++ {
		if name[i] <= ' ' || name[i] >= 0x7f {
			return name, false
		}
	}
	return strings.ToLower(strings.TrimSuffix(name, ".")), name != ""
}

// maxLeased is how many names of one connection are remembered as leased.
const maxLeased = 16

// decide says whether c may be used for name, which is claimed by that. The
// lease counts when a name is first used: its end alone ends no connection.
func (c *conn) decide(ctx context.Context, raw string) ruling {
	name, ok := canonical(raw)
	if !ok {
		return ruling{name: raw, reason: refusedName.Error()}
	}
	c.claim(name)
	r := permit(c.s.config.Policy(), name, c.to)
	if !r.allowed || slices.Contains(c.leased, name) {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, c.s.config.Limits.HeldTime)
	defer cancel()
	held, err := c.s.config.Held(ctx, name, c.to)
	switch {
	case err != nil:
		c.s.config.Log.Warn("the name gate can't ask about a lease", "error", err)
		r.allowed, r.reason = false, refusedKeeper.Error()
	case !held:
		r.allowed, r.reason = false, refusedLease.Error()
	case len(c.leased) < maxLeased:
		c.leased = append(c.leased, name)
	}
	return r
}

// permit is the policy's part: the name, the port, and the class of the address.
func permit(p *policy.Policy, name string, to netip.AddrPort) ruling {
	port := policy.Port{Proto: policy.TCP, Number: to.Port()}
	d := p.Decide(name, port)
	r := ruling{name: name, allowed: d.Allowed, rule: d.Rule, reason: d.Reason}
	if r.allowed && !slices.Contains(p.Admit(name, to.Addr()), port) {
		r.allowed, r.reason = false, refusedAddress.Error()
	}
	return r
}

// Recheck judges every open connection by the policy that is now in force, and
// resets those that are no longer allowed. It must be called after Config.Policy
// returns the new policy, and returns when it is done. The end of a lease alone
// ends no connection.
func (s *Server) Recheck() {
	type use struct {
		name string
		to   netip.AddrPort
	}
	p := s.config.Policy()
	known := make(map[use]bool)
	for _, c := range s.conns.all() {
		for _, name := range c.claims() {
			u := use{name, c.to}
			allowed, ok := known[u]
			if !ok {
				allowed = permit(p, name, c.to).allowed
				known[u] = allowed
			}
			if !allowed && c.end(audit.Deny, refusedRevoked.Error()) {
				s.stats.revoked.Add(1)
			}
		}
	}
}
