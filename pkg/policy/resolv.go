package policy

import (
	"net/netip"
	"slices"
)

// Resolv is what resolv.conf(5) says to who asks in the place of programs.
type Resolv struct {
	Servers    []netip.AddrPort `json:"servers,omitempty"`
	Search     []string         `json:"search,omitempty"`      // domains, in lower case, without dots at their ends
	PassedOver []string         `json:"passed_over,omitempty"` // servers that are not asked, and why
	Fault      string           `json:"fault,omitempty"`       // why nothing of the file counts
}

// Equal says whether two say the same.
func (r Resolv) Equal(s Resolv) bool {
	return slices.Equal(r.Servers, s.Servers) && slices.Equal(r.Search, s.Search) && slices.Equal(r.PassedOver, s.PassedOver) && r.Fault == s.Fault
}

// Unresolvable returns an allowed name that only a DNS server could resolve, nil if there is none: of the agent's, of
// the broker's, or of the exporter's.
func (p *Policy) Unresolvable() *Rule {
	for _, q := range []*Policy{p, p.Broker, p.Exporter} {
		if q == nil {
			continue
		}
		for _, r := range q.rules {
			_, stands := q.StandIn(r.Name)
			if r.Name != "" && !r.Deny && !stands && (r.Wildcard || len(q.hosts[r.Name]) == 0 && q.lookup(r.Name).Allowed) {
				return r
			}
		}
	}
	return nil
}
