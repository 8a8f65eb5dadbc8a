package probe

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/selftest"
)

// whyTime is how long a server may take to say why a name has no address.
const whyTime = 3 * time.Second

// askWhy asks the first of servers why name has no address, in its own words
// (Extended DNS Errors, RFC 8914), which package net does not pass on; "" if it
// does not say.
func askWhy(ctx context.Context, servers []netip.AddrPort, name string) string {
	if len(servers) == 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), whyTime)
	defer cancel()
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	q.SetEdns0(1232, false)
	var c dns.Client
	r, _, err := c.ExchangeContext(ctx, q, servers[0].String())
	if err != nil {
		return ""
	}
	return whyNot(r)
}

// whyNot is the reason for a reply without an address.
func whyNot(r *dns.Msg) string {
	said := ""
	if opt := r.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if ede, ok := o.(*dns.EDNS0_EDE); ok && ede.ExtraText != "" {
				said = selftest.Clean(ede.ExtraText)
			}
		}
	}
	if said == "" && byPolicy(r) != "" {
		said = "the policy does not allow it"
	}
	switch {
	case len(addresses(r)) > 0:
		return "" // it has one now
	case r.Rcode == dns.RcodeNameError && said == "":
		return "the name does not exist, say the DNS servers that agent-init asks (NXDOMAIN)"
	case r.Rcode == dns.RcodeSuccess && said == "":
		return "the name exists, and has no address"
	case said == "":
		return ""
	}
	return fmt.Sprintf("the name is not resolved: %s", said)
}
