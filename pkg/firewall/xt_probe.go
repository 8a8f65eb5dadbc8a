package firewall

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// probeName is the name of a set and of chains that nothing uses.
const probeName = "probe"

// probe loads, into chains where no packet comes, one of everything that rules
// are made of, and removes it. The versions that programs and kernels tell of
// themselves prove nothing.
func (x *xt) probe(ctx context.Context) error {
	var parts []ipsetPart
	for _, s := range probeSets() {
		parts = append(parts, s.ipsets()...)
	}
	defer func() {
		for _, p := range parts {
			if err := x.sets.destroy(p.name); err != nil {
				x.log.Debug("remove a set that was for probing", "error", err)
			}
		}
	}()
	for _, p := range parts {
		if err := x.clearProbe(ctx, p.name); err != nil {
			return explain("probe ipset", err)
		}
		if err := x.sets.create(p.ipset); err != nil {
			return explain("probe ipset", err)
		}
	}
	for _, f := range xtFamilies() {
		tables, err := x.probeTables(f)
		if err != nil {
			return err
		}
		text := restoreText(tables, nil)
		err = x.tools.load(ctx, f, text)
		loaded := []string{"filter", "mangle", "nat"}
		if err != nil {
			loaded = nil
		}
		if e := x.removeProbe(ctx, f, loaded); err == nil {
			err = e
		}
		if err != nil {
			return fmt.Errorf("%w: IPv%d: %w%s", ErrUnsupported, f, err, blamed(text, err))
		}
	}
	return nil
}

// probeZone says whether rules can put flows into zones.
func (x *xt) probeZone(ctx context.Context) bool {
	for _, f := range xtFamilies() {
		tables, err := probeTables(xtRenderer{family: f, uids: x.uids}, []probeRules{{"raw", []rule{to(zone{guardZone}, matchUID{uid: 1})}}})
		if err == nil {
			err = x.tools.load(ctx, f, restoreText(tables, nil))
		}
		if err == nil {
			err = x.removeProbe(ctx, f, []string{"raw"})
		}
		if err != nil {
			x.log.Debug("flows can't be put into zones", "error", err)
			return false
		}
	}
	return true
}

// clearProbe removes what a probe that was cut short left of a set, and of the
// chains that use it.
func (x *xt) clearProbe(ctx context.Context, name string) error {
	if err := x.sets.destroy(name); !errors.Is(err, nl.IPSetError(nl.IPSET_ERR_BUSY)) {
		return err
	}
	for _, f := range xtFamilies() {
		if err := x.removeProbe(ctx, f, nil); err != nil {
			return err
		}
	}
	return x.destroyUnused(name)
}

// probeAddr is an address to probe with. Any will do: no packet meets it.
func probeAddr(f family) netip.Prefix {
	if f == ipv6 {
		return single(netip.IPv6Loopback())
	}
	return single(engineDNS())
}

// probeSets are sets whose parts are of every type that plans use.
func probeSets() []set {
	var out []set
	for _, f := range families() {
		a := probeAddr(f)
		out = append(out, set{name: fmt.Sprintf("%s%d", probeName, f), family: f, kind: leased},
			set{name: fmt.Sprintf("%s%d", probeName, f+100), family: f, kind: static, boxes: []box{{prefix: a}, {a, protoTCP, 1}}})
	}
	return out
}

// probeTables returns chains with one of everything, which nothing jumps to.
func (x *xt) probeTables(f family) ([]xtTable, error) {
	sets := map[string]set{}
	for _, s := range probeSets() {
		sets[s.name] = s
	}
	name := fmt.Sprintf("%s%d", probeName, f)
	return probeTables(xtRenderer{family: f, uids: x.uids, sets: sets}, []probeRules{
		{"filter", []rule{
			to(drop{}, matchProto{proto: protoTCP}, matchSYN{}, matchState{stateNew}, matchOriginal{}, matchUID{uid: 1}, matchGID{gid: 1},
				matchForeign{}, matchSet{set: name}, matchIn{}),
			to(drop{}, matchSet{set: fmt.Sprintf("%s%d", probeName, f+100)}),
			to(drop{}, matchProto{proto: protoICMP}, matchICMP{3}), to(drop{}, matchProto{proto: protoICMPv6}, matchICMP{135}, matchHopLimit{}),
			to(drop{}, matchAnswer{netip.AddrPortFrom(probeAddr(f).Addr(), 1)}, matchHeld{}), to(drop{}, matchProto{proto: protoTCP}, matchSrcPort{1}, matchReset{}),
			to(keep{name}, matchReply{}, matchSet{name, true}), to(drop{}, matchRouted{}), to(log{1, meterSet(f), true, logPrefix}, matchProto{proto: protoTCP}),
			to(reset{}, matchProto{proto: protoTCP}), to(prohibit{}),
		}},
		{"mangle", []rule{to(drop{}, matchOut{not: true}, matchDst{single(engineDNS())})}},
		{"nat", []rule{to(redirect{1}, matchProto{proto: protoUDP}, matchPort{53}, matchUID{uid: 1}, matchGID{gid: 1})}},
	})
}

// probeRules are what a probe tries in one table.
type probeRules struct {
	table string
	rules []rule
}

// probeTables puts them into a chain of each table, as r renders them.
func probeTables(r xtRenderer, all []probeRules) ([]xtTable, error) {
	var out []xtTable
	for _, t := range all {
		table := xtTable{name: t.table}
		r.table = &table
		c := xtChain{name: xtPrefix + probeName}
		for _, ru := range t.rules {
			lines, err := r.rule(&c, ru)
			if err != nil {
				return nil, err
			}
			c.rules = append(c.rules, lines...)
		}
		table.chains = append(table.chains, c)
		out = append(out, table)
	}
	return out, nil
}

// removeProbe removes the chains of a probe from these tables, or without any, from
// those that have it.
func (x *xt) removeProbe(ctx context.Context, f family, in []string) error {
	if in == nil {
		live, err := x.tools.read(ctx, f)
		if err != nil {
			return err
		}
		in = slices.DeleteFunc(slices.Sorted(maps.Keys(live)), func(name string) bool { return live[name].rules[xtPrefix+probeName] == nil })
	}
	var b strings.Builder
	for _, name := range in {
		fmt.Fprintf(&b, "*%s\n-F %s\n-X %s\nCOMMIT\n", name, xtPrefix+probeName, xtPrefix+probeName)
	}
	if b.Len() == 0 {
		return nil
	}
	return x.tools.load(ctx, f, b.String())
}

// blamed quotes the line of text that err, a complaint of iptables-restore,
// gives the number of.
func blamed(text string, err error) string {
	m := regexp.MustCompile(`line:? (\d+)`).FindStringSubmatch(err.Error())
	if m == nil {
		return ""
	}
	n, _ := strconv.Atoi(m[1])
	lines := strings.Split(text, "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	return fmt.Sprintf(" (line %d is %q)", n, lines[n-1])
}

// lockFile returns the lock that the legacy variant should take, or "" for its
// own, which others in this container take as well. On a read-only root that
// can't be made, and fallback is to be used.
func lockFile(fallback string) string {
	const usual = "/run/xtables.lock"
	fd, err := unix.Open(usual, unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fallback
	}
	unix.Close(fd)
	return ""
}

// readUsed is read that doesn't make the kernel set up the tables of the legacy
// variant: to look at them would.
func (t xtTools) readUsed(ctx context.Context, f family) (xtLive, error) {
	if t.variant == xtLegacy {
		file := "/proc/thread-self/net/ip_tables_names"
		if f == ipv6 {
			file = "/proc/thread-self/net/ip6_tables_names"
		}
		if names, err := os.ReadFile(file); err != nil || len(names) == 0 {
			return nil, nil // the kernel has none, or nobody uses them
		}
	}
	return t.read(ctx, f)
}

// holdsEngine says whether a container engine's rules for its DNS are in live.
func holdsEngine(live xtLive) bool {
	t := live["nat"]
	if t == nil {
		return false
	}
	for _, rules := range t.rules {
		if slices.ContainsFunc(rules, func(r string) bool { return strings.Contains(r, engineDNS().String()) }) {
			return true
		}
	}
	return false
}
