package faults

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
	"github.com/agent-init/agent-init/test/attack/rig"
)

// unplug takes a box's link down, and its addresses and routes with it; plug
// gives them back.
func unplug(w *rig.World) (plug func()) {
	w.Helper()
	var addrs []netlink.Addr
	var routes []netlink.Route
	rig.Must(w.T, w.Box.Net.Do(func() error {
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
		rig.Must(w.T, w.Box.Net.Do(func() error {
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

var _ = rig.Also(TestFaultLink, rig.UnderStress)

// TestFaultLink: a link that goes and comes, as that of a laptop does, leaves
// nothing open, and everything works again without help.
func TestFaultLink(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	rig.EvilZone(w.Lab)
	before := rig.Rules(t, w.Box)
	for range rig.Often(3, 30) {
		plug := unplug(w)
		w.Blocked("http", "-timeout", "2s", "https://ok.test/")
		if p := w.Poke("dns", "8.8.8.8:53", "evil.test", "A"); p.OK {
			t.Errorf("denied names without a link: %s", p)
		}
		plug()
		w.Recovers("the link was down")
		w.Closed()
	}
	rig.SameRules(t, "the link was down", before, rig.Rules(t, w.Box))
	if w.Restarts() != 0 {
		t.Errorf("%d restarts", w.Restarts())
	}
}

var _ = rig.Also(TestFaultSecondNetwork, rig.UnderStress)

// TestFaultSecondNetwork: a network that is attached later, as by docker
// network connect, is as closed as the first one, and leads nowhere when it goes.
func TestFaultSecondNetwork(t *testing.T) {
	w := rig.Confine(t, "ok.test\n172.31.0.7:7777\n", lab.BoxOptions{})
	for range rig.Often(2, 20) {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1"}, PeerName: "eth2"}
		rig.Must(t, w.Box.Net.Do(func() error { // which leads back, where nobody listens
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
			rig.Must(t, w.Box.Net.Do(func() error {
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
				w.Box.Poke(uid, "tcp", "-timeout", "300ms", to)
				w.Box.Poke(uid, "udp", "-noreply", to)
			}
		}
		if n := sent(); n != begin {
			t.Errorf("%d packets left by the second network", n-begin)
		}
		w.Box.Poke(lab.AgentUID, "tcp", "-timeout", "300ms", "172.31.0.7:7777")
		if sent() == begin {
			t.Error("proves nothing, what is allowed is not sent there either")
		}
		w.Recovers("a network was attached")
		rig.Must(t, w.Box.Net.Do(func() error { return netlink.LinkDel(link) }))
		w.Recovers("a network was detached")
	}
	w.Closed("172.31.0.7")
}

var _ = rig.Also(TestFaultXtablesLock, rig.UnderStress)

// TestFaultXtablesLock: another program holds the lock of iptables. What is
// asked for meanwhile fails, with the old policy in force, or waits; nobody hangs.
func TestFaultXtablesLock(t *testing.T) {
	lab.Require(t)
	mustrun.Tool(t, "iptables-legacy")
	l := rig.NewLab(t)
	rig.EvilZone(l)
	l.DNS.Set("*.cdn.test", lab.Answer{Func: numbered})
	w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{Env: []string{"AGENT_INIT_BACKEND=xtables-legacy"}, Caps: append(lab.DefaultCaps(), "NET_RAW"),
		Files: []lab.File{rig.Settings("limits:\n  new_names_per_wildcard_per_minute: 10000\n")}})
	w.Works("http", "https://ok.test/")
	for range rig.Often(1, 5) {
		holder := w.Box.ExecStart(rig.LabCmd("flock", "-o", "/run/xtables.lock", "-c", "echo held; exec sleep 600"))
		if !holder.WaitOutput("held", 10*time.Second) {
			t.Fatalf("the lock is not to be had: %s", holder.Stderr())
		}
		// More leases wait for the change than the keeper gives at once.
		asking := w.Box.ExecStart(rig.LabCmd("sh", "-c", "sleep 1; agent-init exec -- poke dns -n 300 -c 300 -timeout 15s "+rig.At(rig.Google4, 53)+" n{n}.cdn.test A"))
		// Names take no rule, and so no lock. An UDP port does.
		if r := w.SetPolicy(rig.Allowlist + "ok2.test\n45.30.9.8:123/udp\n"); r.Code == 0 {
			t.Errorf("reloaded without the lock: %s", r)
		}
		w.Works("http", "https://ok.test/")
		w.Blocked("http", "https://ok2.test/")
		w.Blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
		if r := asking.Wait(time.Minute); r.TimedOut {
			t.Errorf("questions are not answered: %s", r)
		}
		rig.Must(t, holder.Signal(unix.SIGKILL))
		// The file has changed, and is read again by itself or on demand.
		if !rig.Eventually(60*time.Second, func() bool { return w.Root("agent-init", "reload").Code == 0 }) {
			t.Errorf("can't be reloaded: %s", w.Root("agent-init", "reload"))
		}
		w.Works("http", "https://ok2.test/")
		if !rig.Eventually(60*time.Second, func() bool { return w.SetPolicy(rig.Allowlist).Code == 0 }) {
			t.Error("can't be reloaded")
		}
		w.Recovers("the lock was held")
		w.Blocked("http", "https://ok2.test/")
	}
	if w.Restarts() != 0 {
		t.Errorf("%d restarts: %s", w.Restarts(), w.Reasons("guard"))
	}
	w.Closed("ok2.test")
}

// numbered gives each name with a number in it an address of its own.
func numbered(q lab.Query) *dns.Msg {
	m, n := new(dns.Msg).SetReply(q.Msg), 0
	if _, err := fmt.Sscanf(q.Name, "n%d.", &n); err == nil && q.Type == dns.TypeA {
		a := netip.AddrFrom4([4]byte{45, 32 + byte(n>>16), byte(n >> 8), byte(n)})
		m.Answer = append(m.Answer, rig.Record(q.Name+". 300 IN A "+a.String()))
	}
	return m
}

var _ = rig.Also(TestFaultSetFull, rig.UnderStress)

// TestFaultSetFull: a name whose answers never end, and names without end,
// take room from nobody else. What has no room gets no answer.
func TestFaultSetFull(t *testing.T) {
	l := rig.NewLab(t)
	rig.EvilZone(l)
	l.DNS.Set("many.test", lab.Answer{Addrs: rig.Many("45.31.0.1", 3000), Rotate: 60, TTL: 1})
	l.DNS.Set("*.cdn.test", lab.Answer{Func: numbered})
	w := rig.ConfineIn(t, l, "ok.test\nok2.test\nmany.test\n*.cdn.test\n", lab.BoxOptions{Files: []lab.File{rig.Settings("limits:\n  leases: 200\n  addrs_per_name: 20\n  new_names_per_wildcard_per_minute: 10000\n")}})
	w.Works("http", "https://ok.test/")
	w.Poke("dns", "-n", "500", "-c", "8", rig.At(rig.Google4, 53), "n{n}.cdn.test", "A")
	for range 40 {
		w.Poke("dns", rig.At(rig.Google4, 53), "many.test", "A")
	}
	if n := len(rig.Leased(t, w.Box)); n > 250 { // some that were struck out are still running out
		t.Errorf("%d leases, want no more than 200", n)
	} else {
		t.Logf("%d leases", n)
	}
	if p := w.Poke("dns", rig.At(rig.Google4, 53), "last.cdn.test", "A"); p.OK {
		t.Errorf("an answer without room for a lease: %s", p)
	}
	w.Works("http", "https://ok.test/")
	w.Works("http", "https://ok2.test/")
	w.Recovers("the sets were full")
	w.Blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
	if repairs(w) != 0 || w.Restarts() != 0 {
		t.Errorf("%d repairs, %d restarts", repairs(w), w.Restarts())
	}
}
