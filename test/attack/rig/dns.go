package rig

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// Leases reads from the kernel which addresses are open and for how long.
func (w *World) Leases() map[netip.Addr]time.Duration {
	w.Helper()
	out := map[netip.Addr]time.Duration{}
	err := w.Box.Net.Do(func() error {
		if Xtables() {
			open, err := xtLeases()
			for ap, ttl := range open {
				out[ap.Addr()] = max(out[ap.Addr()], ttl)
			}
			return err
		}
		c, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := c.ListTables()
		if err != nil {
			return err
		}
		for _, t := range tables {
			if !strings.HasPrefix(t.Name, "agent-init") {
				continue
			}
			sets, err := c.GetSets(t)
			if err != nil {
				return err
			}
			for _, s := range sets {
				if !s.HasTimeout || s.Dynamic {
					continue
				}
				elements, err := c.GetSetElements(s)
				if err != nil {
					return err
				}
				for _, e := range elements {
					a, ok := netip.AddrFromSlice(e.Key[:len(e.Key)-8]) // protocol and port follow
					if !ok {
						return fmt.Errorf("set %s: key %x", s.Name, e.Key)
					}
					out[a] = max(out[a], e.Expires)
				}
			}
		}
		return nil
	})
	if err != nil {
		w.Fatalf("read leases: %v", err)
	}
	return out
}

// Many returns n addresses that nothing else has.
func Many(first string, n int) []netip.Addr {
	out := []netip.Addr{netip.MustParseAddr(first)}
	for len(out) < n {
		out = append(out, out[len(out)-1].Next())
	}
	return out
}

// Nameless allows no name: nothing at all may be asked upstream.
const Nameless = "45.30.9.9:8443\n"

var (
	Google4 = netip.MustParseAddr("8.8.8.8")
	Google6 = netip.MustParseAddr("2001:4860:4860::8888")
	Port53  = lab.Any(lab.ToPort(unix.IPPROTO_UDP, 53), lab.ToPort(unix.IPPROTO_TCP, 53))
)

func At(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

// Open adds a box without agent-init to the lab.
func (w *World) Open(opts lab.BoxOptions) *lab.Box {
	w.Helper()
	b := w.Lab.NewBox(opts)
	b.Idle()
	return b
}

// Possible fails the test if the operation does not work in an open box either:
// then its failure elsewhere would prove nothing.
func (w *World) Possible(open *lab.Box, args ...string) lab.Poke {
	w.Helper()
	p := open.Poke(lab.AgentUID, append([]string{"-patient"}, args...)...)
	if !p.OK {
		w.Errorf("fails without agent-init too: %v: %s", args, p)
	}
	return p
}

// Values reads a list of strings of a poke's detail.
func Values(p lab.Poke, key string) []string {
	var out []string
	found, _ := p.Detail[key].([]any)
	for _, v := range found {
		out = append(out, fmt.Sprint(v))
	}
	return out
}

// EvilZone answers whatever is asked below evil.test, with data in it.
func EvilZone(l *lab.Lab) {
	evil4, evil6 := Named("evil.test")
	l.DNS.Set("*.evil.test", lab.Answer{Addrs: []netip.Addr{evil4, evil6},
		Records: []dns.RR{Record(`*.evil.test. 60 IN TXT "orders"`)}})
}

func Record(s string) dns.RR {
	rr, err := dns.NewRR(s)
	if err != nil {
		panic(err)
	}
	return rr
}

// Listening returns the TCP ports that something in the box listens on.
func Listening(w *World) []uint16 {
	w.Helper()
	var ports []uint16
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		for _, s := range Sockets(w.T, w.Box, path) {
			if s.State == "0A" && !slices.Contains(ports, s.Local.Port()) {
				ports = append(ports, s.Local.Port())
			}
		}
	}
	return ports
}

type socket struct {
	Local netip.AddrPort
	State string // 0A: listening; see proc_net_tcp(5)
}

// Sockets reads a table of sockets as everybody in the box can. Of IPv6
// addresses it reads the port only.
func Sockets(t *testing.T, box *lab.Box, path string) []socket {
	t.Helper()
	r := box.Exec(lab.Cmd{Args: []string{"cat", path}})
	if r.Code != 0 {
		t.Fatalf("read %s: %s", path, r)
	}
	var out []socket
	for line := range strings.Lines(r.Stdout) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasSuffix(f[0], ":") {
			continue
		}
		addr, port, _ := strings.Cut(f[1], ":")
		a, err1 := hex.DecodeString(addr)
		p, err2 := hex.DecodeString(port)
		if err1 != nil || err2 != nil || len(p) != 2 {
			t.Fatalf("%s: not understood: %s", path, line)
		}
		s := socket{State: f[3]}
		ip := netip.IPv6Unspecified()
		if len(a) == 4 {
			slices.Reverse(a) // host order, on the machines that there are
			ip = netip.AddrFrom4([4]byte(a))
		}
		s.Local = netip.AddrPortFrom(ip, uint16(p[0])<<8|uint16(p[1]))
		out = append(out, s)
	}
	return out
}

// NewLab is a lab to prepare before ConfineIn.
func NewLab(t *testing.T) *lab.Lab {
	t.Helper()
	lab.Require(t)
	return lab.New(t, lab.Options{})
}

// HasSaid waits until a process has printed words on its standard error.
func (w *World) HasSaid(p *lab.Process, words ...string) {
	w.Helper()
	if !Eventually(time.Minute, func() bool {
		for _, word := range words {
			if !strings.Contains(p.Stderr(), word) {
				return false
			}
		}
		return true
	}) {
		w.Fatalf("it has not said %q: %s%s", words, p.Stdout(), p.Stderr())
	}
}
