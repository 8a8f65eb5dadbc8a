package firewall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sys/unix"
)

// xt is the backend of ipsets and of iptables-restore(8). Of a plan it holds the
// same as nft does, in more steps: each table of each family is a transaction of
// its own, and the sets are none of any. So sets are filled before rules use
// them, and the tables that drop by default come first.
type xt struct {
	sets   *ipsets
	tools  xtTools
	others []xtTools // other variants that are installed
	uids   []uidRange
	log    *slog.Logger
	mark   xtMark
	room   map[family]int // of leases that surely fit; see reserve
	zoned  bool           // the kernel has zones
}

// xtFamilies is the order in which families get their rules.
func xtFamilies() []family { return []family{ipv6, ipv4} }

// openXT opens the backend on the best of the variants that are installed, or on
// the one that is asked for. It says why that is the best.
func openXT(ctx context.Context, only xtVariant, opts Options, log *slog.Logger) (*xt, string, error) {
	if err := rawSocket(); err != nil {
		return nil, "", err
	}
	uids, err := knownUIDs()
	if err != nil {
		return nil, "", fmt.Errorf("open xtables: %w", err)
	}
	all, err := findTools(ctx, xtDirs(), only, lockFile(opts.LockFile), opts.Run)
	if err != nil {
		return nil, "", err
	}
	tools, why := all, "it was asked for"
	if only == "" {
		tools, why = preferred(ctx, all)
	} else {
		tools = slices.DeleteFunc(slices.Clone(all), func(t xtTools) bool { return t.variant != only })
	}
	sets, err := openIPSets()
	if err != nil {
		return nil, "", explain("open netfilter socket", err)
	}
	var errs []error
	for i, t := range tools {
		others := slices.DeleteFunc(slices.Clone(all), func(o xtTools) bool { return o.variant == t.variant })
		x := &xt{sets: sets, tools: t, others: others, uids: uids, log: log, room: map[family]int{}}
		err := x.probe(ctx)
		if err == nil {
			if i > 0 {
				why = fmt.Sprintf("the other variant can't be used: %v", errors.Join(errs...))
			}
			x.zoned = x.probeZone(ctx)
			return x, fmt.Sprintf("iptables %s (%s): %s", t.version, t.variant, why), nil
		}
		errs = append(errs, fmt.Errorf("iptables-%s: %w", t.variant, err))
	}
	sets.close()
	return nil, "", fmt.Errorf("probe xtables: %w", errors.Join(errs...))
}

// rawSocket makes sure of the capability that iptables can't do without: it
// opens raw sockets to speak to the kernel.
func rawSocket() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("open a raw socket: %w", ErrRaw)
	}
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	return unix.Close(fd)
}

// preferred puts the variant first whose tables hold the NAT rules of a
// container engine: at the same priority, the tables that came last would win, so
// ours have to be the same. Then come those that an earlier process of ours used.
func preferred(ctx context.Context, tools []xtTools) ([]xtTools, string) {
	if len(tools) == 1 {
		return tools, "it is the variant that is installed"
	}
	for _, look := range []struct {
		why string
		at  func(xtLive) bool
	}{
		{"the container engine's rules are in its tables", holdsEngine},
		{"rules of ours are in its tables", func(l xtLive) bool { return l["filter"].ours() != nil }},
	} {
		for i, t := range tools {
			live, err := t.readUsed(ctx, ipv4)
			if err == nil && look.at(live) { // the probe finds out about those that can't be read
				return append([]xtTools{t}, slices.Delete(slices.Clone(tools), i, i+1)...), look.why
			}
		}
	}
	return tools, "iptables is that one here"
}

func (x *xt) name() string { return "xtables-" + string(x.tools.variant) }

func (x *xt) zones() bool { return x.zoned }

func (x *xt) close() error { return x.sets.close() }

// portID is that of nobody: what changes the tables is another process each time.
func (x *xt) portID() (uint32, error) { return 0, nil }

// read returns the tables of both families.
func (x *xt) read(ctx context.Context) (map[family]xtLive, error) {
	out := map[family]xtLive{}
	for _, f := range xtFamilies() {
		live, err := x.tools.read(ctx, f)
		if err != nil {
			return nil, err
		}
		out[f] = live
	}
	return out, nil
}

// render returns the tables that p wants, for both families.
func (x *xt) render(p Plan) (map[family][]xtTable, error) {
	out := map[family][]xtTable{}
	for _, f := range xtFamilies() {
		tables, err := xtTables(p, f, x.uids)
		if err != nil {
			return nil, fmt.Errorf("IPv%d: %w", f, err)
		}
		out[f] = tables
	}
	return out, nil
}
