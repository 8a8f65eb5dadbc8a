package xtables

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

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// probeName is the name of a set and of chains that nothing uses.
const probeName = "probe"

// probe loads, into chains where no packet comes, one of everything that rules
// are made of, and removes it. The versions that programs and kernels tell of
// themselves prove nothing.
func (x *Backend) probe(ctx context.Context) error {
	var parts []ipsetPart
	for _, s := range probeSets() {
		parts = append(parts, partsOf(s)...)
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
			return nfnetlink.Explain("probe ipset", err)
		}
		if err := x.sets.create(p.ipset); err != nil {
			return nfnetlink.Explain("probe ipset", err)
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
			return fmt.Errorf("%w: IPv%d: %w%s", nfnetlink.ErrUnsupported, f, err, blamed(text, err))
		}
	}
	return nil
}

// probeZone says whether rules can put flows into zones.
func (x *Backend) probeZone(ctx context.Context) bool {
	for _, f := range xtFamilies() {
		tables, err := probeTables(xtRenderer{family: f, uids: x.uids}, []probeRules{{"raw", []plan.Rule{plan.To(plan.Zone{Id: plan.GuardZone}, plan.MatchUID{UID: 1})}}})
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
func (x *Backend) clearProbe(ctx context.Context, name string) error {
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
func probeAddr(f plan.Family) netip.Prefix {
	if f == plan.IPv6 {
		return plan.Single(netip.IPv6Loopback())
	}
	return plan.Single(plan.EngineDNS())
}

// probeSets are sets whose parts are of every type that plans use.
func probeSets() []plan.Set {
	var out []plan.Set
	for _, f := range plan.Families() {
		a := probeAddr(f)
		out = append(out, plan.Set{Name: fmt.Sprintf("%s%d", probeName, f), Family: f, Kind: plan.Leased},
			plan.Set{Name: fmt.Sprintf("%s%d", probeName, f+100), Family: f, Kind: plan.Static, Boxes: []plan.Box{{Prefix: a}, {Prefix: a, Proto: plan.ProtoTCP, Port: 1}}})
	}
	return out
}

// probeTables returns chains with one of everything, which nothing jumps to.
func (x *Backend) probeTables(f plan.Family) ([]xtTable, error) {
	sets := map[string]plan.Set{}
	for _, s := range probeSets() {
		sets[s.Name] = s
	}
	name := fmt.Sprintf("%s%d", probeName, f)
	return probeTables(xtRenderer{family: f, uids: x.uids, sets: sets}, []probeRules{
		{"filter", []plan.Rule{
			plan.To(plan.Drop{}, plan.MatchProto{Proto: plan.ProtoTCP}, plan.MatchSYN{}, plan.MatchState{State: plan.StateNew}, plan.MatchOriginal{}, plan.MatchUID{UID: 1}, plan.MatchGID{GID: 1},
				plan.MatchForeign{}, plan.MatchSet{Set: name}, plan.MatchIn{}),
			plan.To(plan.Drop{}, plan.MatchSet{Set: fmt.Sprintf("%s%d", probeName, f+100)}),
			plan.To(plan.Drop{}, plan.MatchProto{Proto: plan.ProtoICMP}, plan.MatchICMP{Typ: 3}), plan.To(plan.Drop{}, plan.MatchProto{Proto: plan.ProtoICMPv6}, plan.MatchICMP{Typ: 135}, plan.MatchHopLimit{}),
			plan.To(plan.Drop{}, plan.MatchAnswer{To: netip.AddrPortFrom(probeAddr(f).Addr(), 1)}, plan.MatchHeld{}), plan.To(plan.Drop{}, plan.MatchProto{Proto: plan.ProtoTCP}, plan.MatchSrcPort{Port: 1}, plan.MatchReset{}),
			plan.To(plan.Keep{Set: name}, plan.MatchReply{}, plan.MatchSet{Set: name, From: true}), plan.To(plan.Drop{}, plan.MatchRouted{}), plan.To(plan.Log{Group: 1, Set: plan.MeterSet(f), Ports: true, Text: plan.LogPrefix}, plan.MatchProto{Proto: plan.ProtoTCP}),
			plan.To(plan.Reset{}, plan.MatchProto{Proto: plan.ProtoTCP}), plan.To(plan.Prohibit{}),
		}},
		{"mangle", []plan.Rule{plan.To(plan.Drop{}, plan.MatchOut{Not: true}, plan.MatchDst{P: plan.Single(plan.EngineDNS())})}},
		{"nat", []plan.Rule{plan.To(plan.Redirect{Port: 1}, plan.MatchProto{Proto: plan.ProtoUDP}, plan.MatchPort{Port: 53}, plan.MatchUID{UID: 1}, plan.MatchGID{GID: 1})}},
	})
}

// probeRules are what a probe tries in one table.
type probeRules struct {
	table string
	rules []plan.Rule
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
func (x *Backend) removeProbe(ctx context.Context, f plan.Family, in []string) error {
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
func (t xtTools) readUsed(ctx context.Context, f plan.Family) (xtLive, error) {
	if t.variant == xtLegacy {
		file := "/proc/thread-self/net/ip_tables_names"
		if f == plan.IPv6 {
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
		if slices.ContainsFunc(rules, func(r string) bool { return strings.Contains(r, plan.EngineDNS().String()) }) {
			return true
		}
	}
	return false
}
