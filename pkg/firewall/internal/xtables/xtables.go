// Package xtables holds a plan in the tables of iptables, legacy or nft, and in kernel
// ipsets; and, where a kernel has nothing else, a reduced plan in those tables alone.
package xtables

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// Backend takes more steps than nft: each table of each family is a transaction of its own, and the sets are none of
// any. So sets are filled before rules use them, and the tables that drop by default come first.
type Backend struct {
	Name, Why string // the variant, and why it is used
	Zoned     bool   // the kernel has zones

	tools  xtTools
	others []xtTools // other variants that are installed
	uids   []uidRange
	log    *slog.Logger
	mark   xtMark
	room   map[string]int // of leases that surely fit, by set; see reserve
}

// xtFamilies is the order in which families get their rules.
func xtFamilies() []plan.Family { return []plan.Family{plan.IPv6, plan.IPv4} }

// Options say how programs are run.
type Options struct {
	Run      Runner
	LockFile string // what iptables locks where it can't make /run/xtables.lock
	Log      *slog.Logger
}

// Open opens the backend on the best of the variants that are installed, or on the one that is asked for. It says why
// that is the best. Before it tries one, it seals with it, if sealed is not nil; what is sealed stays so.
func Open(only string, sealed *plan.Plan, opts Options) (*Backend, error) {
	if err := rawSocket(); err != nil {
		return nil, err
	}
	uids, err := knownUIDs()
	if err != nil {
		return nil, fmt.Errorf("open xtables: %w", err)
	}
	all, err := findTools(xtDirs(), only, lockFile(opts.LockFile), opts.Run)
	if err != nil {
		return nil, err
	}
	tools, why := all, "it was asked for"
	if only == "" {
		tools, why = preferred(all)
	} else {
		tools = slices.DeleteFunc(slices.Clone(all), func(t xtTools) bool { return t.variant != only })
	}
	var errs []error
	for i, t := range tools {
		others := slices.DeleteFunc(slices.Clone(all), func(o xtTools) bool { return o.variant == t.variant })
		if i > 0 {
			why = fmt.Sprintf("the other variant can't be used: %v", errors.Join(errs...))
		}
		x := opened(t, opts.Log, why)
		x.others, x.uids = others, uids
		err := x.probe(sealed)
		if err == nil {
			return x, nil
		}
		errs = append(errs, fmt.Errorf("iptables-%s: %w", t.variant, err))
	}
	return nil, fmt.Errorf("probe xtables: %w", errors.Join(errs...))
}

func opened(t xtTools, log *slog.Logger, why string) *Backend {
	return &Backend{Name: "xtables-" + t.variant, Why: fmt.Sprintf("iptables %s (%s): %s", t.version, t.variant, why),
		tools: t, log: log, room: map[string]int{}}
}

// rawSocket makes sure of the capability that iptables can't do without: it opens raw sockets to speak to the kernel.
func rawSocket() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err == nil {
		return unix.Close(fd)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		err = nfnetlink.ErrRaw
	}
	return fmt.Errorf("open a raw socket: %w", err)
}

// preferred puts the variant first whose tables hold the NAT rules of a container engine: at the same priority, the
// tables that came last would win, so ours have to be the same. Then come those that an earlier process of ours used.
func preferred(tools []xtTools) ([]xtTools, string) {
	if len(tools) == 1 {
		return tools, "it is the variant that is installed"
	}
	for _, look := range []struct {
		why string
		at  func(xtLive) bool
	}{
		{"the container engine's rules are in its tables", holdsEngine},
		{"rules of ours are in its tables", func(l xtLive) bool { return len(l["filter"].ours()) > 0 }},
	} {
		for i, t := range tools {
			live, err := t.readUsed(plan.IPv4)
			if err == nil && look.at(live) { // the probe finds out about those that can't be read
				return append([]xtTools{t}, slices.Delete(slices.Clone(tools), i, i+1)...), look.why
			}
		}
	}
	return tools, "iptables is that one here"
}

func (x *Backend) Close() error { return nil }

// byFamily is what get returns for each family.
func byFamily[T any](get func(plan.Family) (T, error)) (map[plan.Family]T, error) {
	out := map[plan.Family]T{}
	for _, f := range xtFamilies() {
		got, err := get(f)
		if err != nil {
			return nil, fmt.Errorf("IPv%d: %w", f, err)
		}
		out[f] = got
	}
	return out, nil
}

func (x *Backend) read() (map[plan.Family]xtLive, error) {
	return byFamily(func(f plan.Family) (xtLive, error) { return x.tools.read(f) })
}

func (x *Backend) render(p plan.Plan) (map[plan.Family][]xtTable, error) {
	return byFamily(func(f plan.Family) ([]xtTable, error) { return xtTables(p, f, x.uids) })
}

// Caveats says what a backend of this package does less strictly than p wants it, in a sentence each.
func Caveats(p plan.Plan) []string {
	if p.Reduced {
		return []string{
			"nothing but TCP is let through, all of it by way of the guard, which may accept a connection before it is refused",
			"packets that the rules refuse are not logged; what the guard refuses is",
		}
	}
	out := []string{"a root shell of the container has NET_RAW, and could send past the packet filter. With NET_ADMIN it could change the rules until the next comparison"}
	if s, err := p.Set("asked"); err == nil {
		out = append(out, fmt.Sprintf("for %v after each question of the guard to the container engine's DNS, root may send %d datagrams a second to port 53 of any IPv4 address; and what the engine asks over IPv6 is refused", s.Timeout, askedRate))
	}
	return out
}

// Left says whether there may be chains of the xtables backend: its sets show that.
func Left() (bool, error) {
	names, err := setNames(xtPrefix)
	if nfnetlink.Absent(err) {
		return false, nil
	}
	return len(names) > 0, nfnetlink.Explain("look for rules of the xtables backend", err)
}

// Remove removes the chains and sets of the xtables backend.
func Remove(opts Options) error {
	tools, err := findTools(xtDirs(), "", lockFile(opts.LockFile), opts.Run)
	if err != nil {
		return fmt.Errorf("rules of the xtables backend are there, and can't be removed: %w", err)
	}
	return (&Backend{others: tools, log: opts.Log}).RemoveOthers()
}

// RemoveOthers removes what the other variants hold, and the sets that no rule of this one uses.
func (x *Backend) RemoveOthers() error {
	const what = "remove rules of the xtables backend"
	for _, t := range x.others {
		for _, f := range xtFamilies() {
			live, err := t.readUsed(f)
			if err != nil {
				return nfnetlink.Explain(what, err)
			}
			if text := restoreText(nil, live, true); text != "" {
				if err := t.load(f, text); err != nil {
					return nfnetlink.Explain(what, err)
				}
			}
		}
	}
	return nfnetlink.Explain(what, x.dropSets(x.mark.plan))
}
