package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"github.com/coreos/go-iptables/iptables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall"
)

const (
	manyLeases = 65_000
	fewLeases  = 5_000 // for what takes each by itself
	loadRounds = 9
)

// runLoads measures every way to load rules and addresses, in the network
// namespace that it is started in.
func runLoads() ([]loading, error) {
	ctx := context.Background()
	var rules, addrs []loading
	for _, name := range backendNames() {
		f, err := firewall.Open(ctx, firewall.Options{Backend: name, Run: runProgram})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		l := loading{What: name}
		for i := range loadRounds + 1 {
			p, err := planFor(i)
			if err != nil {
				return nil, err
			}
			begun := time.Now()
			if err := f.Apply(ctx, p, nil); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if i > 0 { // the first has nothing to replace
				l.Took = append(l.Took, time.Since(begun))
			}
			l.Count = strings.Count(p.String(), "\n\t\t")
		}
		var one []loading
		if variant, ok := strings.CutPrefix(name, "xtables-"); ok {
			l.What = name + ": iptables-restore, and reading it back"
			again, err := oneByOne(variant)
			if err != nil {
				return nil, fmt.Errorf("go-iptables: %w", err)
			}
			l.Count, one = again.Count, append(one, again)
		} else {
			l.What += ": one transaction"
		}
		rules = append(append(rules, l), one...)
		if name != "xtables-legacy" { // the same sets
			a, err := addMany(ctx, f, name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			addrs = append(addrs, a)
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	others, err := otherSets()
	return append(append(rules, addrs...), others...), err
}

// planFor returns one of two plans, each with all that a usual one has.
func planFor(i int) (firewall.Plan, error) {
	return firewall.NewPlan(firewall.Config{
		GuardUID: 64901, GuardGID: 48211, DNSPort4: 41053, DNSPort6: 41053, GatePort4: 41080, GatePort6: 41080, DropGroup: 7,
		Upstreams: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.53:53"), netip.MustParseAddrPort("[2001:db8::53]:53")},
		Allow:     []firewall.Entry{{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Proto: unix.IPPROTO_TCP, Port: uint16(8000 + i%2)}},
		Inbound:   []firewall.Entry{{Proto: unix.IPPROTO_TCP, Port: 3000}},
	})
}

func addMany(ctx context.Context, f *firewall.Firewall, name string) (loading, error) {
	l := loading{What: "nftables: a set, 1,000 in a transaction", Count: manyLeases, Addrs: true}
	if name != "nftables" {
		l.What = "xtables: ipset, 1,000 in a message"
	}
	leases := make([]firewall.Lease, manyLeases)
	for i := range leases {
		leases[i] = firewall.Lease{Element: firewall.Element{Addr: address(i), Proto: unix.IPPROTO_TCP, Port: 443}, TTL: time.Hour}
	}
	for range 3 {
		if err := f.RevokeAll(ctx); err != nil {
			return l, err
		}
		begun := time.Now()
		if err := f.Lease(ctx, leases); err != nil {
			return l, err
		}
		l.Took = append(l.Took, time.Since(begun))
	}
	return l, f.RevokeAll(ctx)
}

func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(10<<24+i))))
}

// oneByOne loads the rules that are there once more, as go-iptables does: a
// program for each.
func oneByOne(variant string) (loading, error) {
	l := loading{What: "  one by one, with go-iptables"}
	type rule struct {
		ipt          *iptables.IPTables
		table, chain string
		words        []string
	}
	var rules []rule
	for _, proto := range []iptables.Protocol{iptables.ProtocolIPv6, iptables.ProtocolIPv4} {
		name := map[iptables.Protocol]string{iptables.ProtocolIPv4: "iptables-", iptables.ProtocolIPv6: "ip6tables-"}[proto] + variant
		path, err := exec.LookPath(name)
		if err != nil {
			return l, err
		}
		ipt, err := iptables.New(iptables.IPFamily(proto), iptables.Path(path))
		if err != nil {
			return l, err
		}
		text, err := exec.Command(path + "-save").Output()
		if err != nil {
			return l, err
		}
		table := ""
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			switch {
			case line[0] == '*':
				table = words[0][1:]
			case len(words) > 2 && words[0] == "-A" && strings.HasPrefix(words[1], "agent-init-"):
				// Jumps between chains go nowhere here.
				for i, w := range words {
					if w == "-j" && strings.HasPrefix(words[i+1], "agent-init-") {
						words[i+1] = "RETURN"
					}
				}
				rules = append(rules, rule{ipt, table, "bench" + strings.TrimPrefix(words[1], "agent-init"), words[2:]})
			}
		}
	}
	l.Count = len(rules)
	for range 3 {
		begun := time.Now()
		cleared := map[[3]string]bool{}
		for _, r := range rules {
			if key := [3]string{fmt.Sprint(r.ipt.Proto()), r.table, r.chain}; !cleared[key] {
				cleared[key] = true
				if err := r.ipt.ClearChain(r.table, r.chain); err != nil {
					return l, err
				}
			}
			if err := r.ipt.Append(r.table, r.chain, r.words...); err != nil {
				return l, err
			}
		}
		l.Took = append(l.Took, time.Since(begun))
	}
	for _, r := range rules {
		if err := r.ipt.ClearAndDeleteChain(r.table, r.chain); err != nil {
			return l, err
		}
	}
	return l, nil
}

// otherSets fills an ipset as ipset(8) does, and as netlink's library does.
func otherSets() ([]loading, error) {
	restore := loading{What: "ipset restore", Count: manyLeases, Addrs: true}
	var script strings.Builder
	for i := range manyLeases {
		fmt.Fprintf(&script, "add bench %s,tcp:443 timeout 3600\n", address(i))
	}
	each := loading{What: "netlink's library, one by one", Count: fewLeases, Addrs: true}
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	ttl := uint32(3600)
	fresh := func() error {
		_ = h.IpsetDestroy("bench") // there may be none
		return h.IpsetCreate("bench", "hash:ip,port", netlink.IpsetCreateOptions{Revision: 5, Timeout: &ttl, MaxElements: 2 * manyLeases})
	}
	for range 3 {
		if err := fresh(); err != nil {
			return nil, err
		}
		begun := time.Now()
		if _, _, err := runProgram(context.Background(), firewall.Program{Path: "/usr/sbin/ipset", Args: []string{"restore", "-exist"}, Stdin: []byte(script.String())}); err != nil {
			return nil, err
		}
		restore.Took = append(restore.Took, time.Since(begun))
		if err := fresh(); err != nil {
			return nil, err
		}
		begun = time.Now()
		for i := range fewLeases {
			tcp, port := uint8(unix.IPPROTO_TCP), uint16(443)
			if err := h.IpsetAdd("bench", &netlink.IPSetEntry{IP: address(i).AsSlice(), Protocol: &tcp, Port: &port, Timeout: &ttl, Replace: true}); err != nil {
				return nil, err
			}
		}
		each.Took = append(each.Took, time.Since(begun))
	}
	each.What += fmt.Sprintf(" (%s only)", thousands(fewLeases))
	return []loading{restore, each}, h.IpsetDestroy("bench")
}

// runProgram is a firewall.Runner for a process without a reaper.
func runProgram(ctx context.Context, p firewall.Program) (stdout, stderr []byte, err error) {
	cmd := exec.CommandContext(ctx, p.Path, p.Args...)
	cmd.Env, cmd.Stdin = p.Env, bytes.NewReader(p.Stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.Bytes(), errs.Bytes(), err
}
