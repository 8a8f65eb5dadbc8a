package probe

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/miekg/dns"
)

// askDenied asks server for the addresses of a name that must not resolve:
// the IPv4 ones over UDP, the IPv6 ones over TCP. An answer without an error code is a
// failure even if it is empty, since then someone did resolve the name.
func askDenied(network string, server netip.AddrPort, name string) func(context.Context) outcome {
	qtype := dns.TypeA
	if network == "tcp" {
		qtype = dns.TypeAAAA
	}
	return func(ctx context.Context) outcome {
		q := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
		q.SetEdns0(1232, false) // RFC 6891; without it a server may not say why it refuses (RFC 8914)
		c := dns.Client{Net: network}
		r, _, err := c.ExchangeContext(ctx, q, server.String())
		if err != nil {
			return noReply(err)
		}
		return judgeReply(r, name, network)
	}
}

func noReply(err error) outcome {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return blocked("closed without an answer")
	}
	return refusal(err)
}

func judgeReply(r *dns.Msg, name, network string) outcome {
	rcode := dns.RcodeToString[r.Rcode]
	if addrs := addresses(r); len(addrs) > 0 {
		return answered("for %s over %s (%s)", name, strings.ToUpper(network), strings.Join(addrs, ", "))
	}
	switch r.Rcode {
	case dns.RcodeNameError, dns.RcodeServerFailure, dns.RcodeRefused:
		if len(r.Answer) == 0 {
			return blocked(rcode + byPolicy(r))
		}
	}
	return answered("for %s over %s (%s, %d records)", name, strings.ToUpper(network), rcode, len(r.Answer))
}

func addresses(r *dns.Msg) []string {
	var addrs []string
	for _, rr := range append(append([]dns.RR(nil), r.Answer...), r.Extra...) {
		switch rr := rr.(type) {
		case *dns.A:
			addrs = append(addrs, rr.A.String())
		case *dns.AAAA:
			addrs = append(addrs, rr.AAAA.String())
		}
	}
	return addrs
}

// byPolicy tells a refusal by policy from a name that doesn't exist.
func byPolicy(r *dns.Msg) string {
	if opt := r.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if ede, ok := o.(*dns.EDNS0_EDE); ok && ede.InfoCode == dns.ExtendedErrorCodeBlocked {
				return " (blocked)"
			}
		}
	}
	return ""
}

// nameservers reads the servers in a resolv.conf(5). Without any, programs ask
// the local host.
func nameservers(path string) []netip.AddrPort {
	var servers []netip.AddrPort
	if f, err := os.Open(path); err == nil {
		defer f.Close()
		for sc := bufio.NewScanner(f); sc.Scan(); {
			fields := strings.Fields(sc.Text())
			if len(fields) < 2 || fields[0] != "nameserver" {
				continue
			}
			if a, err := netip.ParseAddr(fields[1]); err == nil {
				servers = append(servers, netip.AddrPortFrom(a, 53))
			}
		}
	}
	if len(servers) == 0 {
		return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}
	}
	return servers
}

// resolverFor returns the resolver that programs have, or one that asks server.
func resolverFor(servers []netip.AddrPort) *net.Resolver {
	r := &net.Resolver{PreferGo: true}
	if len(servers) > 0 {
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, servers[0].String())
		}
	}
	return r
}
