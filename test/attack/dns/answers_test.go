package dns

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// ttl is that of a reply's first record.
func ttl(t *testing.T, p lab.Poke) time.Duration {
	t.Helper()
	ttls := rig.Values(p, "ttls")
	if len(ttls) == 0 {
		t.Fatalf("no records: %s", p)
	}
	n, err := strconv.Atoi(ttls[0])
	rig.Must(t, err)
	return time.Duration(n) * time.Second
}

// stripped fails the test if a name that resolves to addr for everyone else
// resolves to anything, or opens the way to it.
func stripped(w *rig.World, open *lab.Box, name string, addr netip.Addr) {
	w.Helper()
	qtype := "A"
	if addr.Is6() {
		qtype = "AAAA"
	}
	w.Lab.DNS.Set(name, lab.Answer{Addrs: []netip.Addr{addr}})
	args := []string{"dns", rig.At(lab.Upstream4, 53), name, qtype}
	w.Possible(open, args...)
	if p := w.Blocked(args...); p.Detail["rcode"] != "NOERROR" || p.Detail["ede"] != float64(dns.ExtendedErrorCodeBlocked) {
		w.Errorf("%s: want no data, and why: %s", addr, p)
	}
	for a, left := range w.Leases() {
		if a == addr || a == addr.Unmap() {
			w.Errorf("%s is open for %v", a, left)
		}
	}
	if plain := addr.Unmap(); !plain.IsLoopback() && !plain.IsUnspecified() {
		if plain.IsLinkLocalUnicast() && plain.Is6() {
			plain = plain.WithZone("eth0")
		}
		w.Blocked("tcp", "-timeout", "1s", rig.At(plain, 443))
	}
}

var _ = rig.Also(TestPrivateAnswersRefused, rig.InUp)

func TestPrivateAnswersRefused(t *testing.T) {
	w := rig.Confine(t, "*.cdn.test\n*.lan.test private\n", lab.BoxOptions{})
	open := w.Open(lab.BoxOptions{})
	special := []string{
		"127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.3.4", "192.168.1.1", "100.64.1.1", "198.18.0.1",
		"169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192",
		"0.0.0.0", "0.1.2.3", "224.0.0.251", "240.1.1.1", "255.255.255.255",
		"::1", "::", "fd00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "ff0e::1",
		w.Box.Gateway4().String(), w.Box.Neighbor4().String(), w.Box.Addr4().String(), w.Box.ULA().String(),
	}
	for i, s := range special {
		a := netip.MustParseAddr(s)
		stripped(w, open, fmt.Sprintf("n%d.cdn.test", i), a)
		if policy.Classify(a) > policy.Private { // not even by an entry that says private
			stripped(w, open, fmt.Sprintf("n%d.lan.test", i), a)
		}
	}
	w.Sealed(lab.Not(rig.Port53))
	w.Audited("what was stripped", func(e rig.Event) bool {
		return e.Kind == "dns" && e.Verdict == "deny" && e.IP == "169.254.169.254" && strings.HasPrefix(e.Rule, "allowlist.txt:")
	})

	// Beside a good address, and after one.
	w.Lab.DNS.SetAddrs("mixed.cdn.test", "10.1.2.3", "45.30.0.20", "169.254.169.254")
	if p := w.Works("dns", rig.At(lab.Upstream4, 53), "mixed.cdn.test", "A"); !slices.Equal(rig.Values(p, "addrs"), []string{"45.30.0.20"}) {
		t.Errorf("mixed answer: %s", p)
	}
	w.Lab.DNS.Set("flip.cdn.test", lab.Answer{Addrs: []netip.Addr{netip.MustParseAddr("45.30.0.21")}, TTL: 1})
	w.Works("resolve", "flip.cdn.test")
	w.Lab.DNS.Set("flip.cdn.test", lab.Answer{Addrs: []netip.Addr{netip.MustParseAddr("169.254.169.254")}, TTL: 1})
	if !rig.Eventually(10*time.Second, func() bool { return !w.Poke("dns", rig.At(lab.Upstream4, 53), "flip.cdn.test", "A").OK }) {
		t.Error("the flipped name is still answered after its TTL")
	}
	for _, a := range []string{"169.254.169.254", "10.1.2.3"} {
		w.Blocked("tcp", "-timeout", "1s", a+":80")
		w.Sealed(lab.ToAddr(a))
	}
}

func TestWrappedPrivateAnswersRefused(t *testing.T) {
	w := rig.Confine(t, "*.cdn.test\n", lab.BoxOptions{})
	open := w.Open(lab.BoxOptions{})
	i := 0
	for _, inner := range []string{"169.254.169.254", "10.1.2.3", "127.0.0.1"} {
		b := netip.MustParseAddr(inner).As4()
		hi, lo := binary.BigEndian.Uint16(b[:]), binary.BigEndian.Uint16(b[2:])
		for _, s := range []string{
			"::ffff:" + inner, "::" + inner, "::ffff:0:" + inner, // mapped, compatible, translated
			"64:ff9b::" + inner,   // NAT64
			"64:ff9b:1::" + inner, // of the site, /96
			fmt.Sprintf("64:ff9b:1:%x:%x:%x::", hi, lo>>8, lo<<8),                     // of the site, /48
			fmt.Sprintf("2002:%x:%x::1", hi, lo),                                      // 6to4
			fmt.Sprintf("2001:0:%x:%x::1", hi, lo),                                    // Teredo server
			fmt.Sprintf("2001:0:2d1e:a:0:0:%x:%x", hi^0xffff, lo^0xffff),              // Teredo client
			fmt.Sprintf("fe80::5efe:%x:%x", hi, lo), fmt.Sprintf("::%x:%x:0", hi, lo), // ISATAP; nobody's
		} {
			stripped(w, open, fmt.Sprintf("w%d.cdn.test", i), netip.MustParseAddr(s))
			i++
		}
	}
	stripped(w, open, "public.cdn.test", netip.MustParseAddr("::ffff:45.30.66.6")) // nothing honest is there
	w.Sealed(lab.Not(rig.Port53))
	w.Lab.DNS.SetAddrs("good.cdn.test", "2a0f:30::20")
	w.Works("http", "https://good.cdn.test/")
}

func TestAliasesOpenNothingElse(t *testing.T) {
	l := rig.NewLab(t)
	l.DNS.SetAddrs("edge.other.test", "45.30.11.1")
	l.DNS.Set("hop.other.test", lab.Answer{CNAME: "edge.other.test"})
	l.DNS.Set("alias.cdn.test", lab.Answer{CNAME: "hop.other.test"})
	l.DNS.Set("inside.cdn.test", lab.Answer{CNAME: "intranet.other.test"})
	l.DNS.SetAddrs("intranet.other.test", "10.1.2.3")
	l.DNS.Set("denied.cdn.test", lab.Answer{CNAME: "denied.test"})
	l.DNS.SetAddrs("denied.test", "45.30.11.2")
	l.DNS.Set("loop.cdn.test", lab.Answer{CNAME: "loop2.cdn.test"})
	l.DNS.Set("loop2.cdn.test", lab.Answer{CNAME: "loop.cdn.test"})
	for i := range 12 {
		l.DNS.Set(fmt.Sprintf("far%d.cdn.test", i), lab.Answer{CNAME: fmt.Sprintf("far%d.cdn.test", i+1)})
	}
	l.DNS.SetAddrs("far12.cdn.test", "45.30.11.3")
	l.DNS.Set("extra.cdn.test", lab.Answer{Addrs: []netip.Addr{netip.MustParseAddr("45.30.11.4")}, Extra: []dns.RR{
		rig.Record("evil.test. 60 IN A 45.30.66.6"), rig.Record("ok2.test. 60 IN A 45.30.66.6"),
		rig.Record("extra.cdn.test. 60 IN AAAA 2a0f:30:66::6"), // not the type that was asked for
	}})
	l.DNS.Set("orphan.cdn.test", lab.Answer{CNAME: "nowhere.test", Extra: []dns.RR{rig.Record("elsewhere.test. 60 IN A 45.30.66.6")}})
	w := rig.ConfineIn(t, l, "*.cdn.test\n!denied.test\n", lab.BoxOptions{})
	open := w.Open(lab.BoxOptions{})
	server := rig.At(lab.Upstream4, 53)

	for name, want := range map[string]string{"alias.cdn.test": "45.30.11.1", "extra.cdn.test": "45.30.11.4"} {
		if p := w.Works("dns", server, name, "A"); !slices.Equal(rig.Values(p, "addrs"), []string{want}) || len(rig.Values(p, "answers")) != 1 {
			t.Errorf("%s: want %s and nothing else: %s", name, want, p)
		}
		w.Works("tcp", want+":443")
	}
	w.Audited("the chain", func(e rig.Event) bool {
		return e.Verdict == "allow" && e.Name == "alias.cdn.test" && strings.Contains(e.Reason, "hop.other.test, edge.other.test")
	})
	w.Blocked("resolve", "edge.other.test") // only by way of the alias

	if p := w.Possible(open, "dns", server, "extra.cdn.test", "A"); !slices.Contains(rig.Values(p, "addrs"), "45.30.66.6") {
		t.Fatalf("the stuffed answer lacks its stuffing: %s", p)
	}
	for _, name := range []string{"inside.cdn.test", "denied.cdn.test", "far0.cdn.test", "orphan.cdn.test"} {
		w.Possible(open, "dns", server, name, "A")
		w.Blocked("dns", server, name, "A")
	}
	w.Blocked("dns", server, "loop.cdn.test", "A")
	for _, a := range []string{"45.30.66.6", "10.1.2.3", "45.30.11.2", "45.30.11.3", "2a0f:30:66::6"} {
		w.Blocked("tcp", "-timeout", "1s", rig.At(netip.MustParseAddr(a), 443))
		w.Sealed(lab.ToAddr(a))
	}
}

func TestStuffedAnswerIsCapped(t *testing.T) {
	l := rig.NewLab(t)
	l.DNS.Set("big.cdn.test", lab.Answer{Addrs: append(rig.Many("45.33.0.0", 3000), rig.Many("2a0f:33::", 1500)...)})
	full := rig.Many("45.34.0.0", 31)
	l.DNS.Set("*.many.test", lab.Answer{Func: func(q lab.Query) *dns.Msg { // as many others for each name
		m := new(dns.Msg).SetReply(q.Msg)
		label, _, _ := strings.Cut(q.Name, ".")
		n, _ := strconv.Atoi(label)
		for i := range full {
			a := netip.AddrFrom4([4]byte{45, byte(128 + i), byte(n >> 8), byte(n)})
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: a.AsSlice()})
		}
		m.Answer = append(m.Answer, &dns.A{Hdr: m.Answer[0].(*dns.A).Hdr, A: netip.MustParseAddr("45.30.77.77").AsSlice()})
		return m
	}})
	const limit = 4096
	w := rig.ConfineIn(t, l, "ok.test\nok2.test\nlater.test\n*.cdn.test\n*.many.test\n!45.30.77.77\n", lab.BoxOptions{Files: []lab.File{{
		Path: "/etc/agent-init/policy.yaml",
		Data: fmt.Appendf(nil, "limits:\n  leases: %d\n  new_names_per_wildcard_per_minute: 100000\ndns:\n  qps: 100000\n", limit)}}})

	p := w.Works("resolve", "big.cdn.test")
	if n := len(rig.Values(p, "addrs")); n < 2 || n > 64 {
		t.Errorf("%d addresses were given of 4500", n)
	}
	if n := len(w.Leases()); n > 128 {
		t.Errorf("%d addresses are open for a few names", n)
	}
	for _, a := range rig.Values(p, "addrs")[:2] {
		w.Works("tcp", rig.At(netip.MustParseAddr(a), 443))
	}

	w.Poke("dns", "-n", "2000", "-c", "16", rig.At(lab.Upstream4, 53), "{n}.many.test", "A")
	n := len(w.Leases())
	if n < limit/8 || n > limit/4+128 { // half of it, two ports each
		t.Errorf("%d addresses are open under a limit of %d elements, half of it for wildcards", n, limit)
	}
	w.Works("http", "https://ok2.test/")
	l.DNS.SetAddrs("later.test", "45.30.12.1", "2a0f:30:12::1")
	if !rig.Eventually(5*time.Second, func() bool { return w.Poke("resolve", "later.test").OK }) {
		t.Error("a name of the list found no room")
	}
	w.Works("http", "https://later.test/")
	w.Works("dns", rig.At(lab.Upstream4, 53), "0.many.test", "A") // which were let in before, still are
	w.Blocked("tcp", "45.30.77.77:443")
	w.Sealed(lab.ToAddr("45.30.77.77"))
	for _, kib := range resident(w) {
		if kib > 128<<10 {
			t.Errorf("a process of agent-init holds %d KiB", kib)
		}
	}
}

// resident returns the memory of each process of agent-init, in KiB.
func resident(w *rig.World) []int {
	w.Helper()
	r := w.Root("sh", "-c", "cat /proc/[0-9]*/status")
	var out []int
	ours := false
	for line := range strings.Lines(r.Stdout) {
		switch f := strings.Fields(line); {
		case len(f) == 2 && f[0] == "Name:":
			ours = f[1] == "agent-init" || f[1] == "exe"
		case ours && len(f) == 3 && f[0] == "VmRSS:":
			n, err := strconv.Atoi(f[1])
			rig.Must(w.T, err)
			out = append(out, n)
		}
	}
	if len(out) < 2 {
		w.Fatalf("keeper and guard not found: %s", r)
	}
	return out
}

func TestTTLIsClamped(t *testing.T) {
	w := rig.Confine(t, "*.cdn.test\n", lab.BoxOptions{})
	server := rig.At(lab.Upstream4, 53)
	for i, c := range []struct {
		name   string
		answer lab.Answer
		want   time.Duration
	}{
		{"zero", lab.Answer{ZeroTTL: true}, time.Second},
		{"usual", lab.Answer{TTL: 20}, 20 * time.Second},
		{"longest", lab.Answer{TTL: 1<<31 - 1}, 300 * time.Second},
		{"negative", lab.Answer{TTL: 1 << 31}, time.Second}, // RFC 2181, section 8
		{"all ones", lab.Answer{TTL: 1<<32 - 1}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			host, addr := fmt.Sprintf("t%d.cdn.test", i), rig.Many("45.30.13.1", i+1)[i]
			c.answer.Addrs = []netip.Addr{addr}
			w.Lab.DNS.Set(host, c.answer)
			got := ttl(t, w.Works("dns", server, host, "A"))
			if got != c.want {
				t.Errorf("the client got %v, want %v", got, c.want)
			}
			lease := w.Leases()[addr]
			if lease < got || lease > got+time.Minute {
				t.Errorf("leased for %v, want %v and no more than a minute on top", lease, got)
			}
			if c.want > 2*time.Second { // from the cache
				if again := ttl(t, w.Works("dns", server, host, "A")); again > got || again > w.Leases()[addr] {
					t.Errorf("cached for %v, leased for %v", again, w.Leases()[addr])
				}
			}
		})
	}
}

var _ = rig.Also(TestLeaseExpiresWhenNameMoves, rig.OverXtables|rig.InUp)

// TestLeaseExpiresWhenNameMoves waits out a real lease: an address is worth nothing once
// its name has moved away, unless it was resolved again meanwhile (E16).
func TestLeaseExpiresWhenNameMoves(t *testing.T) {
	lab.Require(t)
	w := rig.Confine(t, "*.cdn.test\n", lab.BoxOptions{})
	stale, again := netip.MustParseAddr("45.30.14.1"), netip.MustParseAddr("45.30.14.2")
	w.Lab.DNS.Set("stale.cdn.test", lab.Answer{Addrs: []netip.Addr{stale}, TTL: 1})
	w.Lab.DNS.Set("again.cdn.test", lab.Answer{Addrs: []netip.Addr{again}, TTL: 1})
	w.Works("resolve", "stale.cdn.test")
	w.Works("resolve", "again.cdn.test")
	if left := w.Leases()[stale]; left <= 0 || left > 61*time.Second {
		t.Fatalf("leased for %v", left)
	}
	w.Lab.DNS.SetAddrs("stale.cdn.test", "45.30.14.3") // it belongs to somebody else now
	if !rig.Eventually(90*time.Second, func() bool { return w.Leases()[stale] < 10*time.Second }) {
		t.Fatalf("still leased for %v", w.Leases()[stale])
	}
	w.Works("resolve", "again.cdn.test")
	w.Works("resolve", "stale.cdn.test")
	if !rig.Eventually(30*time.Second, func() bool { return w.Leases()[stale] == 0 }) {
		t.Fatalf("still leased for %v", w.Leases()[stale])
	}
	w.Box.ForgetPackets()
	for _, port := range []uint16{80, 443} {
		if p := w.Blocked("tcp", rig.At(stale, port)); !rig.RefusedAtOnce(p.Errno) {
			t.Errorf("not refused at once: %s", p)
		}
	}
	w.Sealed(lab.ToAddr(stale.String()))
	w.Works("tcp", rig.At(again, 443))
}

var _ = rig.Also(TestDNSAnswerWaitsForLease, rig.OverXtables|rig.InUp)

func TestDNSAnswerWaitsForLease(t *testing.T) {
	l := rig.NewLab(t)
	one := func(q lab.Query) *dns.Msg { // another address for each name
		m := new(dns.Msg).SetReply(q.Msg)
		label, _, _ := strings.Cut(q.Name, ".")
		n, err := strconv.Atoi(label)
		if err != nil || q.Type != dns.TypeA {
			return m
		}
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
			A: netip.AddrFrom4([4]byte{45, 35, byte(n >> 8), byte(n)}).AsSlice()}}
		return m
	}
	l.DNS.Set("*.new.test", lab.Answer{Func: one})
	l.DNS.Set("moving.test", lab.Answer{Addrs: rig.Many("45.36.0.1", 64), Rotate: 4, ZeroTTL: true})
	w := rig.ConfineIn(t, l, "*.new.test\nmoving.test\nfrozen.test\n", lab.BoxOptions{Files: []lab.File{{
		Path: "/etc/agent-init/policy.yaml",
		Data: []byte("limits:\n  new_names_per_wildcard_per_minute: 100000\ndns:\n  qps: 100000\n")}}})
	w.Works("loop", "-n", "2000", "-c", "8", "-name", "{n}.new.test", ":443")
	asked := map[string]bool{} // some again, if a machine is too busy to answer in time
	for _, q := range w.Lab.Queries("new.test") {
		asked[fmt.Sprint(q.Name, q.Type)] = true
	}
	if len(asked) != 4000 { // A and AAAA, no others, and none by another way
		t.Errorf("%d questions reached the servers, want 4000", len(asked))
	}
	w.Works("loop", "-n", "2000", "-c", "8", "-name", "moving.test", ":443")
	if n := len(w.Leases()); n < 2000 {
		t.Errorf("only %d addresses were leased", n)
	}

	// While nobody can lease, an answer with an address must not come. There is
	// none before: the guard may look for the name by itself at any time.
	keeper := w.Keeper()
	keeper.Stop(t)
	l.DNS.SetAddrs("frozen.test", "45.30.15.1")
	p := w.Box.Poke(lab.AgentUID, "dns", "-timeout", "1m", rig.At(lab.Upstream4, 53), "frozen.test", "A")
	keeper.Signal(t, unix.SIGCONT)
	if p.Detail["rcode"] != "SERVFAIL" {
		t.Errorf("with the keeper stopped: want SERVFAIL, got %s", p)
	}
	if !rig.Eventually(10*time.Second, func() bool { return w.Poke("resolve", "frozen.test").OK }) {
		t.Error("not resolved after the keeper went on")
	}
	w.Works("tcp", "45.30.15.1:443")
}

var _ = rig.Also(TestAnswerExtendsLease, rig.OverXtables|rig.InUp)

func TestAnswerExtendsLease(t *testing.T) {
	w := rig.Confine(t, "*.cdn.test\n", lab.BoxOptions{})
	addr := netip.MustParseAddr("45.30.16.1")
	w.Lab.DNS.Set("again.cdn.test", lab.Answer{Addrs: []netip.Addr{addr}, TTL: 1})
	w.Works("resolve", "again.cdn.test")
	if !rig.Eventually(10*time.Second, func() bool { return w.Leases()[addr] < 59*time.Second }) {
		t.Fatalf("the lease does not run: %v", w.Leases()[addr])
	}
	before := w.Leases()[addr]
	w.Works("dns", rig.At(lab.Upstream4, 53), "again.cdn.test", "A")
	if after := w.Leases()[addr]; after <= before+time.Second {
		t.Errorf("resolved again, and leased for %v after %v", after, before)
	}
	w.Works("tcp", rig.At(addr, 443))
}

var _ = rig.Also(TestPooledClientOutlivesLease, rig.OverXtables|rig.InUp)

// TestPooledClientOutlivesLease waits out a real lease: a client that keeps a
// connection open may open more without asking DNS again.
func TestPooledClientOutlivesLease(t *testing.T) {
	lab.Require(t)
	w := rig.Confine(t, "*.cdn.test:8443\n", lab.BoxOptions{})
	pool, idle := netip.MustParseAddr("45.30.17.1"), netip.MustParseAddr("45.30.17.2")
	w.Lab.DNS.Set("pool.cdn.test", lab.Answer{Addrs: []netip.Addr{pool}, TTL: 1})
	w.Lab.DNS.Set("idle.cdn.test", lab.Answer{Addrs: []netip.Addr{idle}, TTL: 1})
	w.Works("resolve", "pool.cdn.test")
	held := w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "poke", "tcp", "-hold", "67s", rig.At(pool, 8443)}})
	w.Works("resolve", "idle.cdn.test") // later than the other, so its lease ends later
	w.Lab.DNS.Forget()
	if !rig.Eventually(90*time.Second, func() bool { return w.Leases()[idle] == 0 }) {
		t.Fatalf("a lease that nobody uses still has %v", w.Leases()[idle])
	}
	w.Blocked("tcp", rig.At(idle, 8443))
	w.Works("tcp", "-send", "reconnected", rig.At(pool, 8443))
	w.Unasked("pool.cdn.test")
	r := held.Wait(0)
	if p, err := lab.ParsePoke(r.Stdout); err != nil || !p.OK {
		t.Errorf("the connection did not live on: %v %s", err, r)
	}
}
