package attack

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/mustrun"
)

// unplug takes a box's link down, and its addresses and routes with it; plug
// gives them back.
func (w *world) unplug() (plug func()) {
	w.Helper()
	var addrs []netlink.Addr
	var routes []netlink.Route
	must(w.T, w.box.Net.Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if addrs, err = netlink.AddrList(link, netlink.FAMILY_ALL); err != nil {
			return err
		}
		all, err := netlink.RouteList(link, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, r := range all {
			if r.Gw != nil {
				routes = append(routes, r)
			}
		}
		for i := range addrs {
			if err := netlink.AddrDel(link, &addrs[i]); err != nil {
				return err
			}
		}
		return netlink.LinkSetDown(link)
	}))
	return func() {
		w.Helper()
		must(w.T, w.box.Net.Do(func() error {
			link, err := netlink.LinkByName("eth0")
			if err == nil {
				err = netlink.LinkSetUp(link)
			}
			for _, a := range addrs {
				if err == nil {
					a.Flags = unix.IFA_F_NODAD
					err = netlink.AddrAdd(link, &a)
				}
			}
			for _, r := range routes {
				if err == nil {
					err = netlink.RouteReplace(&r)
				}
			}
			return err
		}))
	}
}

var _ = also(TestFaultLink, underStress)

// TestFaultLink: a link that goes and comes, as that of a laptop does, leaves
// nothing open, and everything works again without help.
func TestFaultLink(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	evilZone(w.lab)
	before := rules(t, w.box)
	for range often(3, 30) {
		plug := w.unplug()
		w.blocked("http", "-timeout", "2s", "https://ok.test/")
		if p := w.poke("dns", "8.8.8.8:53", "evil.test", "A"); p.OK {
			t.Errorf("denied names without a link: %s", p)
		}
		plug()
		w.recovers("the link was down")
		w.closed()
	}
	sameRules(t, "the link was down", before, rules(t, w.box))
	if w.restarts() != 0 {
		t.Errorf("%d restarts", w.restarts())
	}
}

var _ = also(TestFaultSecondNetwork, underStress)

// TestFaultSecondNetwork: a network that is attached later, as by docker
// network connect, is as closed as the first one, and leads nowhere when it goes.
func TestFaultSecondNetwork(t *testing.T) {
	w := confine(t, "ok.test\n172.31.0.7:7777\n", lab.BoxOptions{})
	for range often(2, 20) {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}, PeerName: "eth2"}
		must(t, w.box.Net.Do(func() error { // which leads back, where nobody listens
			if err := netlink.LinkAdd(link); err != nil {
				return err
			}
			addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IP{172, 31, 0, 2}, Mask: net.CIDRMask(16, 32)}}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return err
			}
			peer, err := netlink.LinkByName(link.PeerName)
			if err == nil {
				err = netlink.LinkSetUp(peer)
			}
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(link)
		}))
		sent := func() (n uint64) {
			must(t, w.box.Net.Do(func() error {
				l, err := netlink.LinkByName("eth1")
				if err == nil {
					n = l.Attrs().Statistics.TxPackets
				}
				return err
			}))
			return n
		}
		begin := sent()
		for _, to := range []string{"172.31.0.9:443", "172.31.0.9:53", "172.31.255.255:9", "172.31.0.7:7778"} {
			for _, uid := range []uint32{0, lab.AgentUID} {
				w.box.Poke(uid, "tcp", "-timeout", "300ms", to)
				w.box.Poke(uid, "udp", "-noreply", to)
			}
		}
		if n := sent(); n != begin {
			t.Errorf("%d packets left by the second network", n-begin)
		}
		w.box.Poke(lab.AgentUID, "tcp", "-timeout", "300ms", "172.31.0.7:7777")
		if sent() == begin {
			t.Error("proves nothing, what is allowed is not sent there either")
		}
		w.recovers("a network was attached")
		must(t, w.box.Net.Do(func() error { return netlink.LinkDel(link) }))
		w.recovers("a network was detached")
	}
	w.closed("172.31.0.7")
}

var _ = also(TestFaultXtablesLock, underStress)

// TestFaultXtablesLock: another program holds the lock of iptables. What is
// asked for meanwhile fails, with the old policy in force, or waits; nobody hangs.
func TestFaultXtablesLock(t *testing.T) {
	lab.Require(t)
	mustrun.Tool(t, "iptables-legacy")
	l := newLab(t)
	evilZone(l)
	l.DNS.Set("*.cdn.test", lab.Answer{Func: numbered})
	w := confineIn(t, l, allowlist, lab.BoxOptions{Env: []string{"AGENT_INIT_BACKEND=xtables-legacy"}, Caps: append(lab.DefaultCaps(), "NET_RAW"),
		Files: []lab.File{settings("limits:\n  new_names_per_wildcard_per_minute: 10000\n")}})
	w.works("http", "https://ok.test/")
	for range often(1, 5) {
		holder := w.box.ExecStart(labCmd("flock", "-o", "/run/xtables.lock", "-c", "echo held; exec sleep 600"))
		if !holder.WaitOutput("held", 10*time.Second) {
			t.Fatalf("the lock is not to be had: %s", holder.Stderr())
		}
		// More leases wait for the change than the keeper gives at once.
		asking := w.box.ExecStart(labCmd("sh", "-c", "sleep 1; agent-init exec -- poke dns -n 300 -c 300 -timeout 15s "+at(google4, 53)+" n{n}.cdn.test A"))
		// Names take no rule, and so no lock. An UDP port does.
		if r := w.setPolicy(allowlist + "ok2.test\n45.30.9.8:123/udp\n"); r.Code == 0 {
			t.Errorf("reloaded without the lock: %s", r)
		}
		w.works("http", "https://ok.test/")
		w.blocked("http", "https://ok2.test/")
		w.blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
		if r := asking.Wait(time.Minute); r.TimedOut {
			t.Errorf("questions are not answered: %s", r)
		}
		must(t, holder.Signal(unix.SIGKILL))
		// The file has changed, and is read again by itself or on demand.
		if !eventually(60*time.Second, func() bool { return w.root("agent-init", "reload").Code == 0 }) {
			t.Errorf("can't be reloaded: %s", w.root("agent-init", "reload"))
		}
		w.works("http", "https://ok2.test/")
		if !eventually(60*time.Second, func() bool { return w.setPolicy(allowlist).Code == 0 }) {
			t.Error("can't be reloaded")
		}
		w.recovers("the lock was held")
		w.blocked("http", "https://ok2.test/")
	}
	if w.restarts() != 0 {
		t.Errorf("%d restarts: %s", w.restarts(), w.reasons("guard"))
	}
	w.closed("ok2.test")
}

// numbered gives each name with a number in it an address of its own.
func numbered(q lab.Query) *dns.Msg {
	m, n := new(dns.Msg).SetReply(q.Msg), 0
	if _, err := fmt.Sscanf(q.Name, "n%d.", &n); err == nil && q.Type == dns.TypeA {
		a := netip.AddrFrom4([4]byte{45, 32 + byte(n>>16), byte(n >> 8), byte(n)})
		m.Answer = append(m.Answer, record(q.Name+". 300 IN A "+a.String()))
	}
	return m
}

var _ = also(TestFaultSetFull, underStress)

// TestFaultSetFull: a name whose answers never end, and names without end,
// take room from nobody else. What has no room gets no answer.
func TestFaultSetFull(t *testing.T) {
	l := newLab(t)
	evilZone(l)
	l.DNS.Set("many.test", lab.Answer{Addrs: many("45.31.0.1", 3000), Rotate: 60, TTL: 1})
	l.DNS.Set("*.cdn.test", lab.Answer{Func: numbered})
	w := confineIn(t, l, "ok.test\nok2.test\nmany.test\n*.cdn.test\n", lab.BoxOptions{Files: []lab.File{settings("limits:\n  leases: 200\n  addrs_per_name: 20\n  new_names_per_wildcard_per_minute: 10000\n")}})
	w.works("http", "https://ok.test/")
	w.poke("dns", "-n", "500", "-c", "8", at(google4, 53), "n{n}.cdn.test", "A")
	for range 40 {
		w.poke("dns", at(google4, 53), "many.test", "A")
	}
	if n := len(leased(t, w.box)); n > 250 { // some that were struck out are still running out
		t.Errorf("%d leases, want no more than 200", n)
	} else {
		t.Logf("%d leases", n)
	}
	if p := w.poke("dns", at(google4, 53), "last.cdn.test", "A"); p.OK {
		t.Errorf("an answer without room for a lease: %s", p)
	}
	w.works("http", "https://ok.test/")
	w.works("http", "https://ok2.test/")
	w.recovers("the sets were full")
	w.blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
	if w.repairs() != 0 || w.restarts() != 0 {
		t.Errorf("%d repairs, %d restarts", w.repairs(), w.restarts())
	}
}
