// Command fakellm is the internet for a container test: put it on an internal
// network, give its address to the container under test as DNS server, and
// mount its CA there.
//
// It serves the fake LLM over TLS on port 443 for any name, with certificates
// of a new CA whose own one it writes to DIR/ca.pem, plain HTTP on port 80, and,
// with -dns, DNS on port 53 UDP and TCP: the names of -names have the address
// of -addr, every other gets NXDOMAIN. One line per request and query goes to
// standard output. It runs until it is killed, or a server fails.
//
//	fakellm -ca /ca -names api.anthropic.com,platform.claude.com -dns
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/fakellm"
	"github.com/miekg/dns"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fakellm:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	fs := flag.NewFlagSet("fakellm", flag.ContinueOnError)
	dir := fs.String("ca", ".", "`DIR` to write ca.pem to")
	names := fs.String("names", "api.anthropic.com", "comma-separated `NAMES` that DNS knows")
	withDNS := fs.Bool("dns", false, "serve DNS as well")
	addr := fs.String("addr", "", "`IP` of those names (default: the first of this machine that isn't loopback)")
	listen := fs.String("listen", "", "`IP` to listen on (default: all)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ca, err := lab.NewCA()
	if err != nil {
		return err
	}
	// In place in one step: who waits for the file never reads half of it.
	tmp := filepath.Join(*dir, ".ca.pem")
	if err := os.WriteFile(tmp, ca.PEM, 0o644); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(*dir, "ca.pem")); err != nil {
		return err
	}
	out := log.New(os.Stdout, "", log.Lmicroseconds)
	failed := make(chan error)
	model := fakellm.New()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out.Printf("http %s %s %s", r.Method, r.Host, r.URL.Path)
		model.ServeHTTP(w, r)
	})
	// One server for both would set HTTP/2 up for whichever begins first.
	secure := &http.Server{TLSConfig: ca.ServerConfig(), ReadHeaderTimeout: time.Minute, Handler: handler}
	open := &http.Server{ReadHeaderTimeout: time.Minute, Handler: handler}
	https, err := net.Listen("tcp", net.JoinHostPort(*listen, "443"))
	if err != nil {
		return err
	}
	plain, err := net.Listen("tcp", net.JoinHostPort(*listen, "80"))
	if err != nil {
		return err
	}
	go func() { failed <- secure.ServeTLS(https, "", "") }()
	go func() { failed <- open.Serve(plain) }()
	if *withDNS {
		ip, err := ownAddr(*addr)
		if err != nil {
			return err
		}
		handler := answer(strings.Split(*names, ","), ip, out)
		for _, network := range []string{"udp", "tcp"} {
			s := &dns.Server{Addr: net.JoinHostPort(*listen, "53"), Net: network, Handler: handler}
			go func() { failed <- s.ListenAndServe() }()
		}
		out.Printf("serving %s at %s", *names, ip)
	}
	return <-failed
}

func ownAddr(given string) (netip.Addr, error) {
	if given != "" {
		return netip.ParseAddr(given)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, errors.New("no address but loopback: give one with -addr")
}

func answer(names []string, ip netip.Addr, out *log.Logger) dns.HandlerFunc {
	for i, n := range names {
		names[i] = dns.CanonicalName(strings.TrimSpace(n))
	}
	return func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.RecursionAvailable = true
		if len(q.Question) != 1 {
			m.Rcode = dns.RcodeFormatError
			_ = w.WriteMsg(m)
			return
		}
		name, qtype := q.Question[0].Name, q.Question[0].Qtype
		hdr := dns.RR_Header{Name: name, Class: dns.ClassINET, Ttl: lab.DefaultTTL, Rrtype: qtype}
		switch {
		case !slices.Contains(names, dns.CanonicalName(name)):
			m.Rcode = dns.RcodeNameError
		case qtype == dns.TypeA && ip.Is4():
			m.Answer = []dns.RR{&dns.A{Hdr: hdr, A: ip.AsSlice()}}
		case qtype == dns.TypeAAAA && ip.Is6():
			m.Answer = []dns.RR{&dns.AAAA{Hdr: hdr, AAAA: ip.AsSlice()}}
		}
		out.Printf("dns %s %s %s", name, dns.TypeToString[qtype], dns.RcodeToString[m.Rcode])
		_ = w.WriteMsg(m)
	}
}
