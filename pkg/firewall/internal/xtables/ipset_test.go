package xtables

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/netns"
	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// Each type in each family holds what it is given, as ipset(8) shows it, and
// nothing else.
func TestKernelIPSet(t *testing.T) {
	netns.Enter(t)
	if d, err := dumpSet("agent-init-none"); d != nil || err != nil {
		t.Errorf("a set that isn't there: %v, %v", d, err)
	}
	must(t, destroySet("agent-init-none"))
	for _, x := range []struct {
		set  ipset
		in   plan.Box
		text string
	}{
		{ipset{"agent-init-a", hashIPPort, plan.IPv4, true, 100}, plan.Box{Prefix: single(far4), Proto: unix.IPPROTO_TCP, Port: 443}, "192.0.2.1,tcp:443 timeout "},
		{ipset{"agent-init-b", hashIPPort, plan.IPv6, true, 100}, plan.Box{Prefix: single(far6), Proto: unix.IPPROTO_UDP, Port: 53}, "2001:db8::1,udp:53 timeout "},
		{ipset{"agent-init-c", hashNetPort, plan.IPv4, false, 100}, plan.Box{Prefix: netip.MustParsePrefix("10.0.0.0/9"), Proto: unix.IPPROTO_UDP, Port: 123}, "10.0.0.0/9,udp:123\n"},
		{ipset{"agent-init-d", hashNetPort, plan.IPv6, false, 100}, plan.Box{Prefix: netip.MustParsePrefix("8000::/1"), Proto: unix.IPPROTO_TCP, Port: 1}, "8000::/1,tcp:1\n"},
		{ipset{"agent-init-e", hashNet, plan.IPv4, false, 100}, plan.Box{Prefix: netip.MustParsePrefix("128.0.0.0/1")}, "128.0.0.0/1\n"},
		{ipset{"agent-init-f", hashNet, plan.IPv6, false, 100}, plan.Box{Prefix: single(other6)}, "2001:db8:7::7\n"},
	} {
		must(t, createSet(x.set))
		if err := createSet(x.set); !errors.Is(err, unix.EEXIST) {
			t.Errorf("%s: made twice: %v", x.set.name, err)
		}
		e := ipsetEntry{Box: x.in}
		if x.set.timed {
			e.ttl = 600 * time.Second
		}
		must(t, setEntries(nl.IPSET_CMD_ADD, x.set, []ipsetEntry{e}))
		d, err := dumpSet(x.set.name)
		must(t, err)
		ttl, ok := d.entries[x.in]
		if !d.is(x.set) || !ok || len(d.entries) != 1 || x.set.timed != (ttl > 590*time.Second) {
			t.Errorf("%s: the kernel has %+v, want %+v", x.set.name, d, x)
		}
		if out := ipsetProgram(t, "save", x.set.name); !strings.Contains(out, "add "+x.set.name+" "+x.text) {
			t.Errorf("ipset shows %q, without %q", out, x.text)
		}
		must(t, setEntries(nl.IPSET_CMD_DEL, x.set, []ipsetEntry{e, e})) // again is fine
		if d, err := dumpSet(x.set.name); err != nil || len(d.entries) != 0 {
			t.Errorf("%s: after removal: %+v, %v", x.set.name, d, err)
		}
	}
	ipsetProgram(t, "create", "foreign", "hash:ip", "counters")
	got, err := setNames("agent-init-")
	must(t, err)
	if strings.Join(got, " ") != "agent-init-a agent-init-b agent-init-c agent-init-d agent-init-e agent-init-f" {
		t.Errorf("names are %q", got)
	}
	if d, err := dumpSet("foreign"); err != nil || d.is(ipset{"foreign", hashIPPort, plan.IPv4, false, 65536}) {
		t.Errorf("a foreign set: %+v, %v", d, err)
	}
	must(t, destroySet("agent-init-a"))
}

// Adding again extends, and shortens.
func TestKernelIPSetRefresh(t *testing.T) {
	netns.Enter(t)
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		d := ipset{"agent-init-x", hashIPPort, f, true, 100}
		must(t, createSet(d))
		b := plan.Box{Prefix: single(map[plan.Family]netip.Addr{plan.IPv4: far4, plan.IPv6: far6}[f]), Proto: unix.IPPROTO_TCP, Port: 443}
		for _, ttl := range []time.Duration{10 * time.Second, time.Hour, 10 * time.Second} {
			must(t, setEntries(nl.IPSET_CMD_ADD, d, []ipsetEntry{{b, ttl}}))
			got, err := dumpSet(d.name)
			must(t, err)
			if left := got.entries[b]; left > ttl || left < ttl-5*time.Second {
				t.Errorf("%v: %v left, want %v", b, left, ttl)
			}
		}
		// One that replaces it in a step has its entries.
		e := ipset{"agent-init-y", hashIPPort, f, true, 50}
		must(t, createSet(e))
		must(t, setCommand(nl.IPSET_CMD_SWAP, d.name, nfnetlink.Text(nl.IPSET_ATTR_SETNAME2, e.name)...))
		if got, err := dumpSet(d.name); err != nil || got.max != 50 || len(got.entries) != 0 {
			t.Errorf("after the swap: %+v, %v", got, err)
		}
		must(t, destroySet("agent-init-x"))
		must(t, destroySet("agent-init-y"))
	}
}

func TestKernelIPSetMany(t *testing.T) {
	netns.Enter(t)
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		d := ipset{"agent-init-many", hashIPPort, f, true, 2 * 65000}
		must(t, createSet(d))
		entries := manyEntries(f, 65000)
		start := time.Now()
		must(t, setEntries(nl.IPSET_CMD_ADD, d, entries))
		added := time.Since(start)
		start = time.Now()
		must(t, setEntries(nl.IPSET_CMD_ADD, d, entries))
		again := time.Since(start)
		start = time.Now()
		got, err := dumpSet(d.name)
		must(t, err)
		t.Logf("IPv%d, 65,000 entries: added in %v, again in %v, read in %v", f, added, again, time.Since(start))
		if len(got.entries) != len(entries) {
			t.Errorf("IPv%d: %d entries", f, len(got.entries))
		}
		for _, e := range entries {
			if _, ok := got.entries[e.Box]; !ok {
				t.Fatalf("IPv%d: %v is missing", f, e)
			}
		}
		must(t, setEntries(nl.IPSET_CMD_DEL, d, entries))
		if got, err := dumpSet(d.name); err != nil || len(got.entries) != 0 {
			t.Errorf("after removal: %d entries, %v", len(got.entries), err)
		}
		must(t, destroySet(d.name))
	}
}

// manyEntries returns n entries that differ.
func manyEntries(f plan.Family, n int) []ipsetEntry {
	out := make([]ipsetEntry, n)
	for i := range out {
		var a netip.Addr
		if b := binary.BigEndian.AppendUint32(nil, uint32(10<<24+i)); f == plan.IPv4 {
			a = netip.AddrFrom4([4]byte(b))
		} else {
			a = netip.AddrFrom16([16]byte(append([]byte{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0}, b...)))
		}
		out[i] = ipsetEntry{plan.Box{Prefix: single(a), Proto: unix.IPPROTO_TCP, Port: 443}, 10 * time.Minute}
	}
	return out
}

func TestIPSetSeconds(t *testing.T) {
	for ttl, want := range map[time.Duration]uint32{
		-1: 1, 1: 1, time.Second: 1, time.Second + 1: 2, time.Hour: 3600, 1 << 62: 4294967,
	} {
		if got := ipsetSeconds(ttl); got != want {
			t.Errorf("%v is %d seconds, want %d", ttl, got, want)
		}
	}
}

// What a set can't hold is refused before the kernel is asked.
func TestEncodeBatchRefuses(t *testing.T) {
	d := ipset{"agent-init-x", hashNet, plan.IPv4, false, 10}
	for _, p := range []string{"0.0.0.0/0", "2001:db8::/32"} {
		if _, err := encodeBatch(d, []ipsetEntry{{Box: plan.Box{Prefix: netip.MustParsePrefix(p)}}}); err == nil {
			t.Errorf("%s was taken", p)
		}
	}
	if _, err := encodeBatch(ipset{"x", hashIPPort, plan.IPv6, true, 1}, manyEntries(plan.IPv6, ipsetChunk)); err != nil {
		t.Errorf("a whole chunk: %v", err)
	}
	if _, err := encodeBatch(ipset{"x", hashIPPort, plan.IPv6, true, 1}, manyEntries(plan.IPv6, 2*ipsetChunk)); err == nil {
		t.Error("a message longer than its length can say")
	}
}

func TestIPSetErrors(t *testing.T) {
	if err := ipsetError("make", "x", nl.IPSetError(nl.IPSET_ERR_FIND_TYPE)); !errors.Is(err, nfnetlink.ErrUnsupported) {
		t.Errorf("a missing type: %v", err)
	}
	if err := ipsetError("make", "x", unix.EPERM); !errors.Is(err, unix.EPERM) {
		t.Errorf("no permission: %v", err)
	}
}

// ipsetProgram runs ipset(8), as someone else would.
func ipsetProgram(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("ipset", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		mustrun.Lacks(t, "needs ipset(8)")
	}
	if err != nil {
		t.Fatalf("ipset %v: %v: %s", args, err, out)
	}
	return string(out)
}
